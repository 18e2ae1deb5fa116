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
"""Share of in-use time from which on a GPU counts as starved: what verdicts are compared with."""


class PhaseMark(NamedTuple):
    """A training run enters a phase; it lasts until the next mark or its process ends."""

    at_ms: int
    phase: TrainingPhase
    mode: TrainingMode


class Marks(NamedTuple):
    """Many of them in three columns of shape (n,), in the order of their times."""

    at_ms: NDArray[np.int64]
    phase: NDArray[np.int64]
    mode: NDArray[np.int64]


def no_marks() -> Marks:
    """Of a GPU that no one tags."""
    none = np.empty(0, dtype=np.int64)
    return Marks(none, none, none)


@dataclass(frozen=True)
class GpuTruth:
    """One GPU, as its model knows it.

    Attributes:
        busy: When it worked.
        starved: When it was idle, a training run asked for a batch and its
            loader's queue held none. Lies within ``jobs``, never touches
            ``busy``'s inside, and is reported from the model's queue, not from
            how busy the GPU was.
        jobs: Each job from its first to its last work on the device.
        held: Each process from its start to its end; its memory is taken.
        marks: What a ``PhaseTagger`` in the training runs would have entered;
            empty for servers and notebooks, which have none.
        memory_mib: What a process holds while it lives, in MiB.
        spins: When it was busy with nothing but waiting for its peers; lies within ``busy``.
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
        """``marks``, one by one."""
        columns = (column.tolist() for column in self.marks)
        return tuple(
            PhaseMark(at_ms, PHASES[phase], TrainingMode(mode))
            for at_ms, phase, mode in zip(*columns, strict=True)
        )

    @cached_property
    def lost(self) -> Spans:
        """When it was idle within a job, whoever's fault it was."""
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
        """Starved over in-use time, 0 to 1; 0 where it never was in use."""
        return self.starved_ms / self.in_use_ms if self.in_use_ms else 0.0

    @property
    def is_starved(self) -> bool:
        return self.starved_ratio >= STARVED_FROM

    def in_phase(self, phase: TrainingPhase, mode: TrainingMode = TrainingMode.TRAIN) -> Spans:
        """When a tagged training was in this phase, while its process lived."""
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
        kind: What was modelled: a key of ``KINDS``.
        seed: With the kind, all that it was drawn from.
        duration_ms: How long it was watched; all times are from its begin.
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
