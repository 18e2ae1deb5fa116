"""These tests train with a framework; they are skipped, visibly, where it is not installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")


@pytest.fixture(autouse=True)
def framework(request: pytest.FixtureRequest) -> str:
    """The framework of the marker ``keras_<framework>``."""
    marks = [mark.name for mark in request.node.iter_markers() if mark.name.startswith("keras_")]
    name = marks[0].removeprefix("keras_") if marks else os.environ["KERAS_BACKEND"]
    missing = [module for module in ("keras", name) if find_spec(module) is None]
    if missing and os.environ.get("GPUMON_REQUIRE_KERAS") == "1":
        pytest.fail(f"{' and '.join(missing)} must be installed here")
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: use make test-{name}")
    return name


@pytest.fixture(autouse=True)
def own_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a ring of its own."""
    from trainer_hooks.ring import process_ring

    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    return tmp_path


_TRAINED: dict[object, tuple[set[str], Any, Any]] = {}
"""By function and arguments: the tests that used it, its result, and its ring."""


@pytest.fixture
def trained_once(
    request: pytest.FixtureRequest, own_runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Trains for all tests that ask for the same, and each has the ring of that training.

    A test that asks a second time, because it is measured again, has it trained again.
    """
    from trainer_hooks.ring import process_ring

    def trained(train: Callable[..., Any], **settings: Any) -> Any:
        key, test = (train, *settings.items()), request.node.nodeid
        if key not in _TRAINED or test in _TRAINED[key][0]:
            result = train(**settings)
            _TRAINED[key] = (set(), result, process_ring.process_ring())
        asked, result, ring = _TRAINED[key]
        asked.add(test)
        monkeypatch.setattr(process_ring._Slot, "ring", ring)
        return result

    return trained


def _on(*frameworks: str) -> list[Any]:
    """For the parameters of a fixture."""
    return [pytest.param(name, marks=getattr(pytest.mark, f"keras_{name}")) for name in frameworks]


@pytest.fixture(params=_on("jax", "tensorflow", "torch"))
def each_backend(request: pytest.FixtureRequest, framework: str) -> str:
    """A test that uses it is run once on each backend, in the environment of that backend."""
    name: str = request.param
    return name


@pytest.fixture(params=_on("jax", "torch"))
def jax_and_torch(request: pytest.FixtureRequest, framework: str) -> str:
    """As ``each_backend``, for what TensorFlow does in another way."""
    name: str = request.param
    return name
