"""What happened on the GPUs of a synthetic machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingMode, TrainingPhase
from tests.truth.workloads.spans import (
    Spans,
    difference,
    intersection,
    no_spans,
    spans_between,
    total_ms,
)

STARVED_FROM: Final = 0.05
"""The share of the time in use from which a GPU counts as starved."""


class PhaseMark(NamedTuple):
    """A training run enters a phase; it lasts until the next mark or its process ends."""

    at_ms: int
    phase: TrainingPhase
    mode: TrainingMode


class Marks(NamedTuple):
    """Marks in three columns of shape (n,), in the order of time."""

    at_ms: NDArray[np.int64]
    phase: NDArray[np.int64]
    mode: NDArray[np.int64]


def no_marks() -> Marks:
    none = np.empty(0, dtype=np.int64)
    return Marks(none, none, none)


@dataclass(frozen=True)
class GpuTruth:
    """One GPU in its model.

    Attributes:
        busy: When it worked.
        starved: When it was idle, a run requested a batch, and the queue of its loader was empty.
            Within ``jobs``, disjoint from ``busy``; from the model's queue, not from utilisation.
        jobs: Each job from its first to its last work on the device.
        held: Each process from its start to its end, with its memory in use.
        marks: What a ``PhaseTagger`` would have recorded; empty for servers and notebooks.
        memory_mib: Memory of a process.
        spins: When it was busy only with waiting for its peers; within ``busy``.
    """

    busy: Spans
    starved: Spans
    jobs: Spans
    held: Spans = field(default_factory=no_spans)
    marks: Marks = field(default_factory=no_marks)
    memory_mib: int = 0
    spins: Spans = field(default_factory=no_spans)

    @cached_property
    def phases(self) -> tuple[PhaseMark, ...]:
        columns = (column.tolist() for column in self.marks)
        return tuple(
            PhaseMark(at_ms, PHASES[phase], TrainingMode(mode))
            for at_ms, phase, mode in zip(*columns, strict=True)
        )

    @cached_property
    def lost(self) -> Spans:
        """When it was idle within a job."""
        return difference(self.jobs, self.busy)

    @property
    def in_use_ms(self) -> int:
        return total_ms(self.jobs)

    @property
    def busy_ms(self) -> int:
        return total_ms(self.busy)

    @property
    def lost_ms(self) -> int:
        return total_ms(self.lost)

    @property
    def starved_ms(self) -> int:
        return total_ms(self.starved)

    @property
    def starved_ratio(self) -> float:
        """Starved share of the time in use, 0 to 1; 0 if it never was in use."""
        return self.starved_ms / self.in_use_ms if self.in_use_ms else 0.0

    @property
    def is_starved(self) -> bool:
        return self.starved_ratio >= STARVED_FROM

    def in_phase(self, phase: TrainingPhase, mode: TrainingMode = TrainingMode.TRAIN) -> Spans:
        """When a tagged run was in this phase, while its process lived."""
        if not self.held.shape[0]:
            return no_spans()
        at_ms, end_ms = self.marks.at_ms, int(self.held[-1, 1])
        is_it = (self.marks.phase == PHASE_NUMBER[phase]) & (self.marks.mode == mode)
        ends_ms = np.append(at_ms[1:], end_ms) if at_ms.size else at_ms
        return intersection(spans_between(at_ms[is_it], ends_ms[is_it]), self.held)


@dataclass(frozen=True)
class Workload:
    """One machine for a while.

    Attributes:
        kind: A key of ``KINDS``.
        duration_ms: Length of the observation; all times are from its begin.
        gpus: At least one.
    """

    kind: str
    seed: int
    duration_ms: int
    gpus: tuple[GpuTruth, ...]

    @property
    def is_starved(self) -> bool:
        """Whether any of its GPUs is."""
        return any(gpu.is_starved for gpu in self.gpus)
