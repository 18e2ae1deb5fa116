"""The examples as training runs under a real daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.processes import ending

PATIENCE_S = 300
ROOT = Path(__file__).resolve().parents[2]


def path_of(example: str) -> Path:
    """The path of an example, or of a script that the package has for `gpumon demo`."""
    script = ROOT / "examples" / f"{example}.py"
    return script if script.is_file() else ROOT / "trainer_hooks" / "examples" / script.name


class Training:
    """An example in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def type(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def result(self) -> dict[str, Any]:
        """The figures that it prints at its end.

        Then it is killed, because a framework may take seconds to shut down.
        """
        patience = threading.Timer(PATIENCE_S, self._process.kill)
        patience.start()
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                if line.startswith('{"'):
                    result: dict[str, Any] = json.loads(line)
                    return result
            raise AssertionError(self._log.read_text())
        finally:
            patience.cancel()
            self._process.kill()
            self._process.wait()


@contextmanager
def training(
    daemon: RunningDaemon, example: str, run: str, *words: str, **environ: str
) -> Iterator[Training]:
    """A running example; the daemon follows its spans."""
    log = daemon.folder / f"{run}.log"
    spans = str(daemon.folder / "busy.jsonl")
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, path_of(example), "--spans", spans, *words],
            env={**daemon.environ, "GPUMON_RUN": run, **environ},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    with ending(process):
        yield Training(process, log)


class Watched:
    """What a training run reported of itself, and what gpumon reported of it and its GPU.

    Attributes:
        framework: As gpumon calls it.
        cause: The cause of its lost time.
        waited_s: The lost time, by its own account.
    """

    def __init__(
        self, framework: str, cause: str, result: dict[str, Any], report: dict[str, Any], gpu: int
    ) -> None:
        self.framework, self.cause, self.result = framework, cause, result
        self.gpu = report["gpus"][gpu]
        (self.run,) = (run for run in report["runs"] if run["gpus"] == [self.gpu["uuid"]])
        self.advice = report["advice"]
        self.waited_s = 0.0


class WatchedRuns:
    """Tests for a class with a fixture ``watched``."""

    def test_lost_the_time_of_its_sleeps_to_that_cause(self, watched: Watched) -> None:
        # Of a slow input the first batches are fetched before the GPU is at
        # work; a checkpoint is more than its sleep: it also writes.
        lost_s = watched.gpu["idle_by_cause"][watched.cause]

        assert lost_s == pytest.approx(watched.waited_s, rel=0.15)

    def test_was_busy_for_as_long_as_it_computed(self, watched: Watched) -> None:
        busy_s = watched.result["busy_seconds"]

        assert watched.gpu["busy_seconds"] == pytest.approx(busy_s, rel=0.02)

    def test_is_explained_almost_completely(self, watched: Watched) -> None:
        assert watched.gpu["coverage_ratio"] > 0.95

    def test_is_listed_with_its_steps_and_phases(self, watched: Watched) -> None:
        run = watched.run

        assert (run["framework"], run["steps"]) == (watched.framework, watched.result["steps"])
        assert run["phase_seconds"][watched.cause] > 0
        assert run["phase_seconds"]["train_step"] > 0
