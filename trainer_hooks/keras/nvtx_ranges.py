"""Phases as NVTX ranges, for Nsight Systems and nvprof."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

from gpumon.core.phase import PHASES, TrainingMode
from trainer_hooks.taps.phase_machine import StepWriter

DOMAIN: Final = "gpumon"
_WORD_OF_MODE: Final = {
    TrainingMode.TRAIN: "",
    TrainingMode.VALIDATION: " (validation)",
    TrainingMode.PREDICT: " (predict)",
    TrainingMode.BESIDE_STEP: " (beside a step)",
}
_NAMES: Final = [[phase.value + _WORD_OF_MODE[mode] for phase in PHASES] for mode in TrainingMode]
"""By mode, then by phase."""


class Ranges(NamedTuple):
    """How a thread's NVTX ranges are opened and closed.

    Attributes:
        push: Opens a range of that name inside the open ones.
        pop: Closes the last one.
    """

    push: Callable[[str], object]
    pop: Callable[[], object]


class NvtxWriter:
    """Forwards to the ring's writer and keeps an NVTX range open for the current phase."""

    def __init__(self, writer: StepWriter, ranges: Ranges) -> None:
        self._writer = writer
        self.count, self.epoch, self.spent_ns = writer.count, writer.epoch, writer.spent_ns
        self._ranges = ranges
        self._is_open = False

    @property
    def present(self) -> tuple[int, int]:
        return self._writer.present

    @property
    def span(self) -> int:
        return self._writer.span

    def enter(self, phase: int, mode: int = 0, *, is_done: bool = False) -> None:
        self._writer.enter(phase, mode, is_done=is_done)
        self.close()
        self._ranges.push(_NAMES[mode][phase])
        self._is_open = True

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._ranges.pop()


def find_ranges() -> Ranges | None:
    """Return what opens NVTX ranges here: the ``nvtx`` package, else torch with CUDA."""
    return _of_package() or _of_torch()


def _of_package() -> Ranges | None:
    try:
        import nvtx
    except ImportError:
        return None
    domain = nvtx.get_domain(DOMAIN)
    attributes = {
        name: domain.get_event_attributes(message=name) for names in _NAMES for name in names
    }
    return Ranges(lambda name: domain.push_range(attributes[name]), domain.pop_range)


def _of_torch() -> Ranges | None:
    # Never imported for this alone: that takes seconds.
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return Ranges(
        lambda name: torch.cuda.nvtx.range_push(f"{DOMAIN}: {name}"), torch.cuda.nvtx.range_pop
    )
