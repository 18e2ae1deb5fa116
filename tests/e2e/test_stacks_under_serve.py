"""``gpumon serve --stacks`` beside a real training loop without any tag."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.waiting import wait_until

LOOP = Path(__file__).with_name("fed_by_a_queue.py")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@contextmanager
def watched(folder: Path, **environ: str) -> Iterator[RunningDaemon]:
    """A daemon beside the loop, which is over at the end."""
    spans = folder / "busy.jsonl"
    spans.touch()
    process = subprocess.Popen(
        [sys.executable, str(LOOP), str(spans)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        start_new_session=True,
    )
    arguments = ("--source", f"follow:{spans}", "--period", "0.5", "--stacks")
    try:
        with RunningDaemon(folder, *arguments) as daemon:
            yield daemon
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with its worker
        process.wait()


def gpu_of(daemon: RunningDaemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.report()["gpus"][0]
    return found


def test_finds_what_the_loop_waits_for_and_the_line(tmp_path: Path) -> None:
    with watched(tmp_path) as daemon:
        wait_until(lambda: gpu_of(daemon)["seen_samples"].get("input_wait", 0) >= 3, 60)
        gpu, state, metrics = gpu_of(daemon), daemon.state()["gpus"][0], daemon.metrics()
        (place,) = [one for one in gpu["stacks"]["places"] if one["cause"] == "input_wait"][:1]

    assert gpu["seen_by_cause"]["input_wait"] > 1
    assert gpu["starved_seconds"] == pytest.approx(gpu["seen_seconds"])
    assert sum(gpu["seen_by_cause"].values()) == pytest.approx(gpu["seen_seconds"])
    assert state["seen_ns"]["input_wait"] > 0
    assert place["caller"] == {"function": "train", "file": "fed_by_a_queue.py", "line": 31}
    assert 'gpumon_gpu_seen_seconds_total{cause="input_wait",uuid="GPU-followed-0"}' in metrics


def test_leaves_a_process_alone_that_does_not_want_it(tmp_path: Path) -> None:
    with watched(tmp_path, GPUMON_NO_STACKS="1") as daemon:
        wait_until(lambda: "stacks: stacks of process" in " ".join(daemon.report()["notes"]), 60)
        gpu = gpu_of(daemon)

    assert gpu["stacks"] is None
    assert gpu["seen_seconds"] == 0


def test_is_refused_where_pauses_would_be_missed(tmp_path: Path) -> None:
    daemon = RunningDaemon(
        tmp_path, "--source=simulated:flat", "--stacks", "--period=2", ready=False
    )
    with daemon:
        code = daemon.process.wait(30)

    assert code == 2
    assert "--stacks needs a --period of at most 1 s" in daemon.log()
