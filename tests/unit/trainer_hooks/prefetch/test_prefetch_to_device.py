"""The data that ``prefetch_to_device`` accepts, and for which framework, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from trainer_hooks.prefetch import prefetch_to_device
from trainer_hooks.prefetch.kinds import Kind, kind_of


class TestTheDepth:
    @pytest.mark.parametrize(
        ("depth", "error"),
        [(0, ValueError), (-1, ValueError)]
        + [(depth, TypeError) for depth in (1.5, "2", None, True)],
    )
    def test_non_positive_or_non_integer_depth_is_refused(
        self, depth: Any, error: type[Exception]
    ) -> None:
        with pytest.raises(error, match=f"not {depth!r}$"):
            prefetch_to_device([], depth)


class OneArray:
    shape = (3,)
    dtype = "float32"

    def __iter__(self) -> Iterator[float]:
        return iter([1.0, 2.0, 3.0])


class TestInvalidData:
    @pytest.mark.parametrize("data", ["rows.csv", b"rows", {"x": [1]}, OneArray()])
    def test_is_refused_though_iterable(self, data: Any) -> None:
        with pytest.raises(TypeError, match="a single"):
            prefetch_to_device(data)

    def test_tree_of_arrays_is_refused_with_fixed_batches(self) -> None:
        with pytest.raises(TypeError, match=r"give fixed_batches\(\(x, y\), batch_size\)$"):
            prefetch_to_device((OneArray(), OneArray()))

    @pytest.mark.parametrize("data", [3, None, object()])
    def test_is_refused(self, data: Any) -> None:
        with pytest.raises(TypeError, match=f"a {type(data).__name__} is not"):
            prefetch_to_device(data)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that only these modules are imported."""

    def import_these(**modules: Any) -> None:
        for name in ("jax", "torch", "keras", "tensorflow"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        for name, contents in modules.items():
            module = ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)

    return import_these


class TestPlainBatches:
    @pytest.mark.parametrize(("name", "kind"), [("jax", Kind.JAX), ("torch", Kind.TORCH)])
    def test_are_for_the_imported_framework(self, only: Any, name: str, kind: Kind) -> None:
        only(**{name: {}})

        assert kind_of([]) is kind

    @pytest.mark.parametrize(
        ("backend", "kind"),
        [("jax", Kind.JAX), ("torch", Kind.TORCH), ("tensorflow", Kind.HOST)],
    )
    def test_are_for_the_backend_of_keras_if_it_is_imported(
        self, only: Any, backend: str, kind: Kind
    ) -> None:
        backend_module = ModuleType("keras.backend")
        vars(backend_module)["backend"] = lambda: backend
        only(keras={"backend": backend_module}, jax={}, torch={}, tensorflow={})

        assert kind_of([]) is kind

    def test_two_frameworks_need_a_device(self, only: Any) -> None:
        only(jax={}, torch={})

        with pytest.raises(TypeError, match="both JAX"):
            kind_of([])
        assert kind_of([], "cuda:1") is Kind.TORCH

    def test_missing_framework_is_refused(self, only: Any) -> None:
        only()

        with pytest.raises(TypeError, match="neither JAX"):
            prefetch_to_device([])

    def test_are_for_the_framework_of_a_given_device(self, only: Any) -> None:
        only(jax={}, torch={})
        of_jax = type("Device", (), {"__module__": "jaxlib.xla_client"})()
        of_torch = type("device", (), {"__module__": "torch"})()

        assert kind_of([], of_jax) is Kind.JAX
        assert kind_of([], of_torch) is Kind.TORCH
