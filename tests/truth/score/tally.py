"""Findings compared with the truth, and counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

import numpy as np

from tests.truth.score.finding import Finding
from tests.truth.workloads.spans import Spans, iou, lengths_ms
from tests.truth.workloads.truth import STARVED_FROM, GpuTruth

VISIBLE_MS = 1_000
"""A pause that long holds a whole window of any driver."""
_DAY_MS = 86_400_000


@dataclass
class Tally:
    """How often a detector was right, and by how much its figures were off.

    Attributes:
        right: Starved, and found.
        false: Not starved, and accused.
        missed: Starved, and not found.
        quiet: Not starved, and left alone.
        false_on_healthy: Of the false, those that lost hardly anything at all. The others do lose
            time, but to something else than their input.
        healthy_ms: Time watched of GPUs that lost hardly anything.
        lost_errors: Lost seconds reported over true ones, less 1; of each starved GPU.
        starved_errors: The same of what was put down to the input, of each that was found.
        ious: Starved intervals reported and true, over each that was found.
        delays: Bursts seen in full between the first pause that a driver can show and the word.
        missed_ratios: How much of its time in use each GPU starved that was not found.
    """

    right: int = 0
    false: int = 0
    missed: int = 0
    quiet: int = 0
    false_on_healthy: int = 0
    healthy_ms: int = 0
    lost_errors: list[float] = field(default_factory=list)
    starved_errors: list[float] = field(default_factory=list)
    ious: list[float] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    missed_ratios: list[float] = field(default_factory=list)

    def add(self, truth: GpuTruth, found: Finding, watched_ms: int) -> None:
        """Count one GPU of one workload."""
        if not truth.is_starved:
            self._add_not_starved(truth, found, watched_ms)
            return
        if found.lost_s is not None:
            self.lost_errors.append(found.lost_s * 1000 / truth.lost_ms - 1)
        if not found.is_starved:
            self.missed += 1
            self.missed_ratios.append(truth.starved_ratio)
            return
        self.right += 1
        if found.starved_s is not None:
            self.starved_errors.append(found.starved_s * 1000 / truth.starved_ms - 1)
        if found.starved is not None:
            self.ious.append(iou(found.starved, truth.starved))
        if found.detected_at_ms is not None:
            delay = bursts_until(truth, found.detected_at_ms)
            if delay is not None:
                self.delays.append(delay)

    def _add_not_starved(self, truth: GpuTruth, found: Finding, watched_ms: int) -> None:
        self.false += found.is_starved
        self.quiet += not found.is_starved
        if truth.lost_ms <= STARVED_FROM * truth.in_use_ms:
            self.healthy_ms += watched_ms
            self.false_on_healthy += found.is_starved

    def join(self, other: Tally) -> None:
        """Add what another counted."""
        for name in ("right", "false", "missed", "quiet", "false_on_healthy", "healthy_ms"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("lost_errors", "starved_errors", "ious", "delays", "missed_ratios"):
            getattr(self, name).extend(getattr(other, name))

    @property
    def precision(self) -> float | None:
        """Of the accused, the share that was starved; ``None``: no one was accused."""
        accused = self.right + self.false
        return self.right / accused if accused else None

    @property
    def recall(self) -> float | None:
        """Of the starved, the share that was found; ``None``: no one was starved."""
        starved = self.right + self.missed
        return self.right / starved if starved else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of the two."""
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    @property
    def alarms_per_day(self) -> float | None:
        """False alarms in a day of a healthy GPU; ``None``: there was no healthy one."""
        return self.false_on_healthy / (self.healthy_ms / _DAY_MS) if self.healthy_ms else None


def middle(values: list[float] | list[int]) -> float | None:
    """The median; ``None`` of nothing."""
    return float(median(values)) if values else None


def worst_of_nine_in_ten(errors: list[float]) -> float | None:
    """What nine in ten errors stay within, without their sign; ``None`` of nothing."""
    return float(np.percentile(np.abs(errors), 90)) if errors else None


def bursts_until(truth: GpuTruth, at_ms: float) -> int | None:
    """Bursts that ended between the end of the first visible starved pause and that moment.

    What no driver can distinguish is one burst. ``None`` where no pause can be seen.
    """
    pauses = visible(truth.starved)
    if not len(pauses):
        return None
    later = pauses[:, 0][1:]  # each burst ends where the next pause begins
    return int(np.count_nonzero(later < at_ms))


def visible(spans: Spans) -> Spans:
    """Those in which a whole window of any driver fits."""
    return spans[lengths_ms(spans) >= VISIBLE_MS]
