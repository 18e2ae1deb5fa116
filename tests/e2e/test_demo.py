"""`gpumon demo` as a user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.programs import ran_python

pytestmark = pytest.mark.slow

STEPS = 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
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
        _, errors = demo.communicate(timeout=30)

    assert (demo.returncode, errors.strip()) == (130, "")
    assert list(tmp_path.iterdir()) == []  # and no process: see tests/left_processes.py


@pytest.mark.alone
def test_shows_a_starved_run_and_the_same_run_with_prefetch() -> None:
    done = ran_python("-m", "gpumon", "demo", "--steps", str(STEPS), timeout_s=180)

    assert done.returncode == 0, done.stderr
    verdicts = re.findall(r"^Verdict: (.*)$", done.stdout, re.MULTILINE)
    assert verdicts[0].startswith("Starved (high loss)")
    assert verdicts[1].startswith("Healthy")
    words = " ".join(done.stdout.split())
    reported = re.findall(r"GPU busy ([\d.]+) s by the compute's own clock, ([\d.]+) s", words)
    assert len(reported) == 2
    for truly_s, seen_s in reported:
        assert float(seen_s) == pytest.approx(float(truly_s), rel=0.05)
    (before_s, after_s) = map(float, re.findall(rf"{STEPS} steps in ([\d.]+) s; GPU", words))
    assert before_s - after_s > 5  # of the 9.6 s that the store takes
