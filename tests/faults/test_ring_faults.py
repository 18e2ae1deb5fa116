"""Hostile rings, training processes that die, and training without a daemon."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.processes import ending
from tests.training_processes import run_to_its_end

_STARVING = """
import sys, time
from pathlib import Path
from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans

with BusySpans(Path(sys.argv[1])) as spans:
    for _ in range(int(sys.argv[2])):
        with phase("train_step"):
            spans.measure(lambda: time.sleep(0.05))
        step()
        with phase("input_wait"):
            time.sleep(0.15)
    with phase("input_wait"):
        print("waiting", flush=True)
        time.sleep(float(sys.argv[3]))
print("done", flush=True)
"""


class Runs:
    """A daemon that follows a file, and training runs beside it."""

    def __init__(self, folder: Path) -> None:
        self.spans = folder / "busy.jsonl"
        self.daemon = RunningDaemon(folder, "--source", f"follow:{self.spans}", "--period", "0.25")

    def start(
        self, steps: int, then_wait_s: float = 0.0
    ) -> AbstractContextManager[subprocess.Popen[str]]:
        """A training run that works a quarter of the time and waits for input the rest."""
        training = subprocess.Popen(
            [sys.executable, "-c", _STARVING, str(self.spans), str(steps), str(then_wait_s)],
            env={**self.daemon.environ, "GPUMON_GPUS": "0", "GPUMON_RUN": "starving"},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return ending(training)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    with made.daemon:
        yield made


def starved_ns(state: dict[str, Any]) -> int:
    return int(state["gpus"][0]["starved_ns"])


class TestATrainerThatIsKilled:
    def test_stops_causing_starvation_and_its_idle_time_stays_explained(self, runs: Runs) -> None:
        with runs.start(steps=10, then_wait_s=60) as training:
            assert training.stdout is not None
            assert training.stdout.readline() == "waiting\n"
            runs.daemon.wait_for(lambda state: starved_ns(state) > 2_500_000_000)
            training.send_signal(signal.SIGKILL)
            training.wait(10)
        ended = runs.daemon.wait_for(lambda state: not state["runs"][0]["alive"])
        time.sleep(4.0)
        later = runs.daemon.state()

        assert starved_ns(later) - starved_ns(ended) < 2_000_000_000
        assert later["gpus"][0]["idle_ns"]["not_in_use"] > 0
        assert later["runs"][0]["steps"] == 10
        assert later["runs"][0]["phase"] is None


class TestNoDaemon:
    @pytest.mark.parametrize("is_blocked", [False, True], ids=["no daemon", "no folder"])
    def test_does_not_affect_a_training_run_even_without_a_writable_folder(
        self, tmp_path: Path, is_blocked: bool
    ) -> None:
        runtime = tmp_path / "runtime"
        if is_blocked:
            runtime.write_text("no folder")

        ended = run_to_its_end(_STARVING, runtime, str(tmp_path / "busy.jsonl"), "3", "0")

        assert (ended.returncode, ended.stdout) == (0, "waiting\ndone\n")
        assert "Traceback" not in ended.stderr
        assert len(ended.stderr.strip().splitlines()) <= 2
