"""These tests train without Keras; they are skipped, visibly, where a framework is missing."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import own_ring
from tests.loops.builders_trainers import ADAPTERS, Adapter, OnHuggingFace, OnLightning

pytest.register_assert_rewrite("tests.loops.in_the_middle", "tests.loops.phases_of_a_trainer")

_NEEDED = {
    "test_lightning": ("torch", "lightning", "pytorch_lightning"),
    "test_trainers": ("torch", "lightning", "transformers", "accelerate"),
    "test_huggingface": ("torch", "transformers", "accelerate"),
    "test_plain_torch": ("torch",),
    "test_prefetch_torch": ("torch",),
    "test_ratios": ("torch", "lightning", "transformers", "accelerate"),
    "test_plain_jax": ("jax",),
}


@pytest.fixture(autouse=True, scope="module")
def frameworks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Skip without the frameworks of the file; torch then uses one core."""
    needed = next(
        names
        for start, names in _NEEDED.items()
        if request.module.__name__.rpartition(".")[2].startswith(start)
    )
    missing = [name for name in needed if find_spec(name) is None]
    if missing and os.environ.get("GPUMON_REQUIRE_KERAS") == "1":
        pytest.fail(f"{' and '.join(missing)} must be installed here")
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    if "torch" not in needed:
        yield
        return
    torch = import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small lose time where several wait for each other
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def builders(request: pytest.FixtureRequest) -> Any:
    """The builders of the framework in the file's name."""
    framework = request.module.__name__.rpartition(".")[2].split("_")[1]
    return import_module(f"tests.loops.builders_{framework}")


@pytest.fixture(params=ADAPTERS)
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Adapter:
    """One trainer after the other."""
    return ADAPTERS[request.param](tmp_path)


@pytest.fixture
def on_lightning(tmp_path: Path) -> OnLightning:
    return OnLightning(tmp_path)


@pytest.fixture
def on_huggingface(tmp_path: Path) -> OnHuggingFace:
    return OnHuggingFace(tmp_path)


@pytest.fixture(scope="module")
def frozen_heap(builders: Any) -> Iterator[None]:
    """Trainers collect garbage often: skip all that was imported so far."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def own_runtime_folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Each test has its own ring, unless its class trains once for all its tests."""
    if "training" in request.fixturenames:
        yield
        return
    with own_ring(tmp_path):
        yield
