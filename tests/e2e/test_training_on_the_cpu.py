"""A training run that computes on the CPU beside a GPU on which its user runs something else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.runs_under_serve import training
from tests.fakenvml.build import fake_env
from tests.fakenvml.control import FakeNvml
from tests.patience import wait_until

pytestmark = pytest.mark.keras_jax

WORDS = ("--slow", "input", "--steps", "60", "--latency-ms", "60", "--passes", "400")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, fake_library: Path) -> dict[str, Any]:
    """The training run names the GPU, too: it was to use it."""
    folder = tmp_path_factory.mktemp("cpu")
    with FakeNvml(folder / "gpus", gpus=1) as fake:
        fake.wave(0, period_s=1.0, busy_ratio=0.6)
        fake.run(0, os.getpid())
        environ = fake_env(folder / "gpus", fake_library.parent)
        with RunningDaemon(folder, "--period", "0.5", environ=environ) as daemon:
            variables = {"KERAS_BACKEND": "jax", "GPUMON_GPUS": "0"}
            with training(daemon, "keras_training", "slow", *WORDS, **variables) as one:
                one.result()
            wait_until(lambda: not daemon.report()["runs"][0]["alive"])
            return daemon.report()


class TestATrainingOnTheCpu:
    def test_is_joined_to_no_gpu(self, report: dict[str, Any]) -> None:
        (run,) = report["runs"]

        assert (run["on_cpu"], run["gpus"], run["steps"]) == (True, [], 60)

    def test_explains_nothing_of_what_the_gpu_lost(self, report: dict[str, Any]) -> None:
        (gpu,) = report["gpus"]

        assert gpu["busy_seconds"] > 1
        assert {cause for cause, lost_s in gpu["idle_by_cause"].items() if lost_s} <= {
            "unknown", "not_in_use",
        }  # fmt: skip
        assert "input_wait" not in {advice["cause"] for advice in report["advice"]}

    def test_is_reported_what_to_check(self, report: dict[str, Any]) -> None:
        (note,) = [note for note in report["notes"] if note.startswith("Run slow ")]

        assert "computes its steps on the CPU, and uses no GPU" in note
        assert "built for CUDA" in note
        assert "CUDA_VISIBLE_DEVICES" in note
