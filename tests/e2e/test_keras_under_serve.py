"""A real Keras training on JAX beside a real daemon: the report names what it waited for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import RunningDaemon, wait_until

pytestmark = pytest.mark.keras_jax


class Training:
    """What a finished training said of itself, and what gpumon said of it."""

    def __init__(self, result: dict[str, float], report: dict[str, Any]) -> None:
        self.result = result
        self.gpu = report["gpus"][0]
        self.run = report["runs"][0]
        self.advice = report["advice"]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Training]:
    """A training whose input is slow, watched from its beginning to its end."""
    folder = tmp_path_factory.mktemp("keras")
    spans = folder / "busy.jsonl"
    with RunningDaemon(folder, "--source", f"follow:{spans}", "--period", "0.5") as daemon:
        ended = subprocess.run(
            [sys.executable, "-m", "trainer_hooks.examples.keras_training",
             "--spans", str(spans), "--steps", "180", "--latency-ms", "15"],
            env={
                **daemon.environ,
                "KERAS_BACKEND": "jax",
                "GPUMON_GPUS": "0",
                "GPUMON_RUN": "slow",
            },
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        observed_s = daemon.report()["gpus"][0]["observed_seconds"]

        def has_seen_the_end() -> bool:
            gpu = daemon.report()["gpus"][0]
            later_s: float = gpu["observed_seconds"] - observed_s
            return later_s > 1 and gpu["pending_seconds"] == 0

        wait_until(has_seen_the_end, patience_s=20)
        yield Training(json.loads(ended.stdout.splitlines()[-1]), daemon.report())


class TestAKerasTrainingWithASlowInput:
    def test_is_called_starved(self, training: Training) -> None:
        assert training.gpu["verdict"] == "starved"
        assert training.advice[0]["cause"] == "input_wait"

    def test_lost_the_time_that_the_store_let_it_wait(self, training: Training) -> None:
        # Each batch is four files of 15 ms; the device waits all of it but
        # what still runs from the step before.
        waited_s = training.gpu["idle_by_cause"]["input_wait"]

        assert waited_s == pytest.approx(180 * 4 * 0.015, rel=0.15)

    def test_was_busy_as_long_as_the_compute_itself_noted(self, training: Training) -> None:
        assert training.gpu["busy_seconds"] == pytest.approx(
            training.result["busy_seconds"], rel=0.02
        )

    def test_is_explained_almost_wholly(self, training: Training) -> None:
        assert training.gpu["coverage_ratio"] > 0.95

    def test_is_listed_with_its_steps_and_phases(self, training: Training) -> None:
        run = training.run

        assert (run["run"], run["framework"], run["steps"]) == ("slow", "keras/jax", 180)
        assert run["phase_seconds"]["input_wait"] > 0
        assert run["phase_seconds"]["train_step"] > 0
