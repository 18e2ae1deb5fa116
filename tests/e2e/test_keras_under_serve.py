"""One training script, three Keras backends, a real daemon: the report names what held it up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import FollowingDaemon
from tests.processes import ending

PATIENCE_S = 300
CAUSE_OF = {
    "input": "input_wait",
    "checkpoint": "checkpoint",
    "validation": "validation",
    "callback": "callbacks",
}
AMOUNT_OF = {
    "input": ("--steps", "30", "--latency-ms", "90"),
    "checkpoint": ("--steps", "105", "--slow-seconds", "12"),
    "validation": ("--steps", "96", "--slow-seconds", "12"),
    "callback": ("--steps", "96", "--slow-seconds", "12"),
}
"""About 45 ms of compute a step, and what is slow besides: twelve seconds, more than a busy machine
takes to start; the input partly hidden where a backend fetches it while it computes."""


class Training:
    """What a finished training said of itself, and what gpumon said of it."""

    def __init__(
        self, backend: str, slow: str, result: dict[str, Any], report: dict[str, Any]
    ) -> None:
        self.backend, self.slow, self.cause = backend, slow, CAUSE_OF[slow]
        self.result = result
        self.gpu = report["gpus"][0]
        self.run = report["runs"][0]
        self.advice = report["advice"]


def trainings() -> list[Any]:
    """A slow input on every backend, and each other cause on one of them."""
    pairs = [
        ("jax", "input"),
        ("jax", "checkpoint"),
        ("tensorflow", "input"),
        ("tensorflow", "validation"),
        ("torch", "input"),
        ("torch", "callback"),
    ]
    return [
        pytest.param(pair, marks=getattr(pytest.mark, f"keras_{pair[0]}"), id="-".join(pair))
        for pair in pairs
    ]


@pytest.fixture(scope="module", params=trainings())
def training(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Training]:
    """A training that something holds up, watched from its beginning to its end."""
    backend, slow = request.param
    folder = tmp_path_factory.mktemp(f"{backend}-{slow}")
    with FollowingDaemon(folder) as daemon:
        result = train_and_die(daemon, backend, "--slow", slow, *AMOUNT_OF[slow])
        yield Training(backend, slow, result, daemon.settled_report())


def train_and_die(daemon: FollowingDaemon, backend: str, *words: str) -> dict[str, Any]:
    """Train in a process of its own; what it said of it.

    Then it is killed: how long a framework takes to shut down, and a busy
    machine makes seconds of that, is no part of the training.
    """
    with (daemon.folder / "training.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer_hooks.examples.keras_training",
             "--spans", str(daemon.spans), *words],
            env={
                **daemon.environ,
                "KERAS_BACKEND": backend,
                "GPUMON_GPUS": "0",
                "GPUMON_RUN": "slow",
            },
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        with ending(process):
            patience = threading.Timer(PATIENCE_S, process.kill)
            patience.start()
            assert process.stdout is not None
            said = process.stdout.readline()
            patience.cancel()
        log.seek(0)
        assert said, log.read()
    result: dict[str, Any] = json.loads(said)
    return result


class TestAKerasTrainingThatSomethingHoldsUp:
    def test_is_called_starved_of_input_or_stalled(self, training: Training) -> None:
        verdict = "starved" if training.slow == "input" else "stalled"

        assert training.gpu["verdict"] == verdict

    def test_is_told_first_what_that_was(self, training: Training) -> None:
        """Beside how long it took to start, which is up to how busy this machine is."""
        causes = [advice["cause"] for advice in training.advice]

        assert next(cause for cause in causes if cause != "start_up") == training.cause

    def test_lost_to_it_what_its_sleeps_took_while_nothing_was_computed(
        self, training: Training
    ) -> None:
        # Of a slow input the first batches are fetched before the GPU is at
        # work; a checkpoint is more than its sleep: it also writes.
        lost_s = training.gpu["idle_by_cause"][training.cause]
        idle_s = training.result["idle_seconds"][training.slow]

        assert lost_s == pytest.approx(idle_s, rel=0.15)

    def test_was_busy_as_long_as_the_compute_itself_noted(self, training: Training) -> None:
        assert training.gpu["busy_seconds"] == pytest.approx(
            training.result["busy_seconds"], rel=0.02
        )

    def test_is_explained_almost_wholly(self, training: Training) -> None:
        assert training.gpu["coverage_ratio"] > 0.95

    def test_is_listed_with_its_steps_and_phases(self, training: Training) -> None:
        run = training.run

        assert (run["run"], run["framework"]) == ("slow", f"keras/{training.backend}")
        assert run["steps"] == training.result["steps"]
        assert run["phase_seconds"][training.cause] > 0
        assert run["phase_seconds"]["train_step"] > 0


@pytest.mark.keras_jax
class TestATrainingOfSeveralStepsAnExecution:
    def test_loses_to_its_input_what_its_sleeps_took_and_says_that_this_is_an_estimate(
        self, tmp_path: Path
    ) -> None:
        words = ("--slow", "input", "--steps", "120", "--latency-ms", "25")
        with FollowingDaemon(tmp_path) as daemon:
            result = train_and_die(daemon, "jax", *words, "--steps-per-execution", "10")
            report = daemon.settled_report()

        (gpu,) = report["gpus"]
        within_s = 0.02 * result["wall_seconds"] + report["period_seconds"]
        assert gpu["idle_by_cause"]["input_wait"] == pytest.approx(
            result["idle_seconds"]["input"], abs=within_s
        )
        assert [note for note in report["notes"] if "are gross" in note]
