"""These tests train with Keras on JAX; they are skipped, visibly, where it is not installed."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")


@pytest.fixture(autouse=True)
def keras_on_jax() -> None:
    missing = [name for name in ("keras", "jax") if find_spec(name) is None]
    if missing and os.environ.get("GPUMON_REQUIRE_KERAS") == "1":
        pytest.fail(f"{' and '.join(missing)} must be installed here")
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: make test uses .venv-jax for these")


@pytest.fixture(autouse=True)
def own_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a ring of its own."""
    from trainer_hooks import process_ring

    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    return tmp_path
