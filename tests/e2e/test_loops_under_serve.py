"""Training runs without Keras under a real daemon: the reports name what they waited for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.daemon import FollowingDaemon
from tests.e2e.runs_under_serve import Training, Watched, WatchedRuns, training
from tests.needs import missing

STEPS = 51
LATENCY_S = 0.05
WAIT_S = 4 * LATENCY_S
"""Each batch is four files of the slow store."""

ON_TORCH = ("torch", "lightning", "huggingface")
FRAMEWORK = {"torch": "loop", "jax": "loop"}
MODULE = {"huggingface": "transformers"}


def train_side_by_side(folder: Path, names: tuple[str, ...]) -> dict[str, Watched]:
    """Run these examples at the same time, each on its own simulated GPU."""
    for name in names:
        if find_spec(MODULE.get(name, name)) is None:
            missing(f"{name} is not installed")
    watched = {}
    with FollowingDaemon(folder, gpus=len(names)) as daemon, ExitStack() as stack:
        started = []
        for gpu, name in enumerate(names):
            words = ("--steps", str(STEPS), "--latency-ms", str(1000 * LATENCY_S))
            environ = {"GPUMON_GPUS": str(gpu), "OMP_NUM_THREADS": "1"}
            one = training(daemon, f"{name}_training", name, "--gpu", str(gpu), *words, **environ)
            started.append(stack.enter_context(one))
        with ThreadPoolExecutor() as readers:
            results = list(readers.map(Training.result, started))
        report = daemon.settled_report()
    for gpu, (name, result) in enumerate(zip(names, results, strict=True)):
        watched[name] = Watched(FRAMEWORK.get(name, name), "input_wait", result, report, gpu)
        watched[name].waited_s = result.get("reading_seconds", STEPS * WAIT_S)
    return watched


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    return train_side_by_side(tmp_path_factory.mktemp("torch"), ON_TORCH)


@pytest.fixture(scope="module")
def on_jax(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    return train_side_by_side(tmp_path_factory.mktemp("jax"), ("jax",))


@pytest.fixture(
    params=[
        *(pytest.param(name, marks=pytest.mark.keras_torch) for name in ON_TORCH),
        pytest.param("jax", marks=pytest.mark.keras_jax),
    ]
)
def watched(request: pytest.FixtureRequest) -> Watched:
    name: str = request.param
    found: Watched = request.getfixturevalue("on_jax" if name == "jax" else "on_torch")[name]
    return found


class TestARunWithASlowInput(WatchedRuns):
    def test_is_called_starved_for_its_input(self, watched: Watched) -> None:
        assert watched.gpu["verdict"] == "starved"
        assert watched.gpu["main_cause"] == "input_wait"
        assert watched.advice[0]["cause"] == "input_wait"

    def test_did_all_its_steps(self, watched: Watched) -> None:
        assert watched.result["steps"] == STEPS


@pytest.mark.keras_torch
@pytest.mark.parametrize("name", ON_TORCH)
def test_the_advice_names_the_missing_workers(on_torch: dict[str, Watched], name: str) -> None:
    assert on_torch[name].run["run"] == name
    assert on_torch[name].run["loader"]["workers"] == 0
    texts = " ".join(advice["text"] for advice in on_torch[name].advice)
    assert "workers=0" in texts  # of all that share the GPU, or of the one that waits most
