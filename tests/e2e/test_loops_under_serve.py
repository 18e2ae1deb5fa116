"""Trainings that are not Keras beside a real daemon: the reports name what they waited for."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import FollowingDaemon
from tests.needs import missing
from tests.processes import ending

STEPS = 105
LATENCY_S = 0.025
WAIT_S = 4 * LATENCY_S
"""Each batch is four files of the slow store."""

ON_TORCH = ("torch", "lightning", "huggingface")
FRAMEWORK = {"torch": "loop", "jax": "loop"}
MODULE = {"huggingface": "transformers"}


class Training:
    """What a finished training said of itself, and what gpumon said of it and its GPU."""

    def __init__(self, name: str, said: str, report: dict[str, Any], gpu: int) -> None:
        self.name = name
        self.result: dict[str, float] = json.loads(said)
        self.gpu = report["gpus"][gpu]
        (self.run,) = (run for run in report["runs"] if run["run"] == name)
        self.advice = report["advice"]


def train_side_by_side(folder: Path, names: tuple[str, ...]) -> dict[str, Training]:
    """Run the examples of these names at once, each on a simulated GPU of its own."""
    for name in names:
        if find_spec(MODULE.get(name, name)) is None:
            missing(f"{name} is not installed")
    logs = [folder / f"{name}.log" for name in names]
    with (
        FollowingDaemon(folder, gpus=len(names)) as daemon,
        ExitStack() as stack,
    ):
        started = [
            stack.enter_context(ending(start_training(name, gpu, log, daemon)))
            for gpu, (name, log) in enumerate(zip(names, logs, strict=True))
        ]
        with ThreadPoolExecutor() as readers:
            said = list(readers.map(last_words, started, logs))
        report = daemon.settled_report()
    return {name: Training(name, said[gpu], report, gpu) for gpu, name in enumerate(names)}


def start_training(
    name: str, gpu: int, log: Path, daemon: FollowingDaemon
) -> subprocess.Popen[str]:
    """One of the examples, on a simulated GPU, in a process of its own."""
    with log.open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", f"trainer_hooks.examples.{name}_training",
             "--spans", str(daemon.spans), "--gpu", str(gpu), "--steps", str(STEPS),
             "--latency-ms", str(1000 * LATENCY_S)],
            env={
                **daemon.environ,
                "GPUMON_GPUS": str(gpu),
                "GPUMON_RUN": name,
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip


def last_words(process: subprocess.Popen[str], log: Path) -> str:
    """The line that ends a training, and the process: Python's way out is no part of it."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith('{"steps"'):
                return line
        raise AssertionError(log.read_text())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    return train_side_by_side(tmp_path_factory.mktemp("torch"), ON_TORCH)


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Training]:
    return train_side_by_side(tmp_path_factory.mktemp("jax"), ("jax",))


@pytest.fixture(
    params=[
        *(pytest.param(name, marks=pytest.mark.keras_torch) for name in ON_TORCH),
        pytest.param("jax", marks=pytest.mark.keras_jax),
    ]
)
def training(request: pytest.FixtureRequest) -> Training:
    name: str = request.param
    found: Training = request.getfixturevalue("on_jax" if name == "jax" else "on_torch")[name]
    return found


class TestATrainingWithASlowInput:
    def test_is_called_starved_for_its_input(self, training: Training) -> None:
        assert training.gpu["verdict"] == "starved"
        assert training.gpu["main_cause"] == "input_wait"
        assert training.advice[0]["cause"] == "input_wait"

    def test_lost_the_time_that_the_store_let_it_wait(self, training: Training) -> None:
        lost_s = training.gpu["idle_by_cause"]["input_wait"]
        waited_s = training.result.get("reading_seconds", STEPS * WAIT_S)

        assert lost_s == pytest.approx(waited_s, rel=0.15)

    def test_was_busy_as_long_as_the_compute_itself_noted(self, training: Training) -> None:
        assert training.gpu["busy_seconds"] == pytest.approx(
            training.result["busy_seconds"], rel=0.02
        )

    def test_is_explained_almost_wholly(self, training: Training) -> None:
        assert training.gpu["coverage_ratio"] > 0.95

    def test_is_listed_with_all_its_steps(self, training: Training) -> None:
        framework = FRAMEWORK.get(training.name, training.name)

        assert (training.run["framework"], training.run["steps"]) == (framework, STEPS)
        assert training.result["steps"] == STEPS


@pytest.mark.keras_torch
@pytest.mark.parametrize("name", ON_TORCH)
def test_the_advice_knows_that_the_loader_has_no_workers(
    on_torch: dict[str, Training], name: str
) -> None:
    run = on_torch[name].run

    assert run["loader"]["workers"] == 0
    texts = " ".join(advice["text"] for advice in on_torch[name].advice)
    (said,) = [one for one in texts.split(". ") if "workers=0" in one]  # once for all of them
    assert name in said
