"""A model computes on the CPU only where its framework states it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trainer_hooks.trainers.tagger import is_on_cpu


def weights(*kinds: str) -> Any:
    each = [SimpleNamespace(device=SimpleNamespace(type=kind)) for kind in kinds]
    return SimpleNamespace(parameters=lambda: iter(each))


def jax(backend: str) -> Any:
    return SimpleNamespace(default_backend=lambda: backend)


def tensorflow(*kinds: str) -> Any:
    devices = [SimpleNamespace(device_type=kind) for kind in kinds]
    return SimpleNamespace(config=SimpleNamespace(list_logical_devices=lambda: devices))


def torch(*, has_used_cuda: bool) -> Any:
    return SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: has_used_cuda))


class TestAModel:
    @pytest.mark.parametrize(
        ("name", "module", "model", "expected"),
        [
            ("jax", jax("cpu"), None, True),
            ("jax", jax("gpu"), None, False),
            ("jax", jax("tpu"), None, False),
            ("tensorflow", tensorflow("CPU", "CPU"), None, True),
            ("tensorflow", tensorflow("CPU", "GPU"), None, False),
            ("tensorflow", tensorflow("CPU", "TPU"), None, False),
            ("tensorflow", tensorflow(), None, False),
            ("torch", torch(has_used_cuda=False), weights("cpu", "cpu"), True),
            ("torch", torch(has_used_cuda=True), weights("cuda"), False),
            ("torch", torch(has_used_cuda=True), weights("cpu"), False),
            ("torch", torch(has_used_cuda=False), weights("cpu", "mps"), False),
            ("torch", torch(has_used_cuda=False), weights("meta"), False),
            ("torch", torch(has_used_cuda=False), weights(), False),
            ("torch", torch(has_used_cuda=False), None, False),
            ("jax", SimpleNamespace(), None, False),
            ("jax", None, None, False),
            ("numpy", SimpleNamespace(), None, False),
        ],
        ids=["jax", "jax on a GPU", "jax on a TPU", "tensorflow", "tensorflow on a GPU",
             "tensorflow on a TPU", "tensorflow without a device", "torch", "torch on a GPU",
             "torch, offloaded", "torch on a Mac", "torch without data", "torch without weights",
             "no model", "another version", "not imported", "another framework"],
    )  # fmt: skip
    def test_is_on_the_cpu(
        self, name: str, module: Any, model: Any, expected: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, name, module)

        assert is_on_cpu(name, model) is expected
