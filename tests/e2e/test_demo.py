"""`gpumon demo` as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

pytestmark = pytest.mark.slow


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
    assert list(tmp_path.iterdir()) == []  # and no process: see tests/leftover_processes.py
