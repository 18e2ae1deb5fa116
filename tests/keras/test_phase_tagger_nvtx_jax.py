"""``PhaseTagger(nvtx=True)`` opens an NVTX range for each phase, one after the other."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders

pytestmark = pytest.mark.keras_jax


class Recorder:
    """Stands in for what opens ranges; keeps what is open, and what was."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.deepest = 0
        self.opened: list[str] = []

    def push(self, name: str) -> None:
        self.open.append(name)
        self.opened.append(name)
        self.deepest = max(self.deepest, len(self.open))

    def pop(self) -> None:
        self.open.pop()


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """A package ``nvtx`` with the calls of the real one."""
    recorder, module = Recorder(), ModuleType("nvtx")
    domain = SimpleNamespace(
        get_event_attributes=lambda *, message: message,
        push_range=recorder.push,
        pop_range=recorder.pop,
    )
    module.__dict__["get_domain"] = {"gpumon": domain}.__getitem__
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return recorder


def train(**settings: Any) -> None:
    validated = {"validation_data": builders.rows_and_sums(32)}
    builders.fit_rows(builders.small_model(), 64, builders.tagger(**settings), **validated)


class TestTheRanges:
    def test_are_the_phases_of_the_ring_in_their_order_one_at_a_time(
        self, package: Recorder
    ) -> None:
        train()
        assert package.opened == []
        train(nvtx=True)

        entered = [
            event.phase.value + ("", " (validation)")[event.value]
            for event in builders.records()
            if event.kind is RingKind.ENTER
        ]
        first_run = entered.index("other")  # before the second tagger, Keras peeks
        assert package.opened == entered[entered.index("callbacks", first_run) :]
        assert {"input_wait", "train_step", "input_wait (validation)"} <= set(package.opened)
        assert package.deepest == 1
        assert package.open == []

    def test_name_a_wait_beside_a_step(self, package: Recorder) -> None:
        builders.fit_rows(
            builders.small_model(steps_per_execution=3), 48, builders.tagger(nvtx=True)
        )

        assert any(name.startswith("input_wait (beside") for name in package.opened)
        assert package.open == []

    def test_are_closed_when_a_fit_raises(self, package: Recorder) -> None:
        def source() -> Any:
            yield from islice(builders.SlowBatches(0.0), 3)
            raise OSError("disk")

        with pytest.raises(OSError, match="disk"):
            builders.fit(
                builders.small_model(), source(), builders.tagger(nvtx=True), steps=4, epochs=1
            )

        assert package.open == []


class TestWhatOpensThem:
    @pytest.fixture
    def trained_beside(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Trains where the tagger was made beside a torch with this CUDA, and without a package."""

        def train_so(**cuda: Any) -> None:
            torch = ModuleType("torch")
            torch.__dict__["cuda"] = SimpleNamespace(**cuda)
            monkeypatch.setitem(sys.modules, "nvtx", None)
            monkeypatch.setitem(sys.modules, "torch", torch)
            hook = builders.tagger(nvtx=True)
            monkeypatch.delitem(sys.modules, "torch")
            builders.fit_rows(builders.small_model(), 64, hook)

        return train_so

    def test_is_torch_where_it_has_cuda_and_there_is_no_package(
        self, trained_beside: Callable[..., None]
    ) -> None:
        recorder = Recorder()
        ranges = SimpleNamespace(range_push=recorder.push, range_pop=recorder.pop)

        trained_beside(is_available=lambda: True, nvtx=ranges)

        assert "gpumon: train_step" in recorder.opened

    def test_is_nothing_with_one_warning_where_there_is_neither(
        self, trained_beside: Callable[..., None]
    ) -> None:
        with builders.one_warning("opens no NVTX ranges"):
            trained_beside(is_available=lambda: False)

        assert builders.phase_ns()["train_step"] > 0

    @pytest.mark.skipif(find_spec("nvtx") is None, reason="the package nvtx is not installed")
    def test_is_the_real_package_where_it_is_installed(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            train(nvtx=True)

        assert builders.phase_ns()["train_step"] > 0
