"""What `gpumon demo` shows on any machine: a training that starves, and the same with prefetch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.programs import ran_python

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_leaves_nothing_where_it_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "gpumon", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        wait_until(lambda: any(tmp_path.glob("gpumon-demo-*/run/phases/*.ring")))
        demo.send_signal(number)
        _, said = demo.communicate(timeout=30)

    assert (demo.returncode, said.strip()) == (130, "")
    assert list(tmp_path.iterdir()) == []  # and no process: see tests/left_processes.py


@pytest.mark.alone
def test_tells_its_story_in_about_a_minute() -> None:
    began_s = time.monotonic()

    done = ran_python("-m", "gpumon", "demo", timeout_s=180)

    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began_s < 90  # 52 s, and 66 s beside two that use both cores
    verdicts = re.findall(r"^Verdict: (.*)$", done.stdout, re.MULTILINE)
    assert verdicts[0].startswith("Starved (high loss)")
    assert verdicts[1].startswith("Healthy")
    words = " ".join(done.stdout.split())
    told = re.findall(r"GPU busy ([\d.]+) s by the compute's own clock, ([\d.]+) s", words)
    assert len(told) == 2
    for truly_s, seen_s in told:
        assert float(seen_s) == pytest.approx(float(truly_s), rel=0.05)
    (before_s, after_s) = map(float, re.findall(r"300 steps in ([\d.]+) s; GPU", words))
    assert before_s - after_s > 10  # of the 14.4 s that the store takes
