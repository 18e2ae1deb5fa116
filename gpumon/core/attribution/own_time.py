"""Whether a rank's time between its steps delays its job, by how its steps vary.

The ranks of a job end a step together. If the others wait for a rank, its own step does not
depend on the time that it takes between steps. A rank that is early waits in its step: the longer
it takes between two steps, the shorter its step is.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

from gpumon.core.attribution.span_labels import LABELS, codes_of
from gpumon.core.ring_format.events import RingKind, RingRecords

_MAX_RECORDS: Final = 256
"""Newest records of a reading that are used: enough to see how steps vary."""
_KEPT: Final = 1 - 1 / 1_024
"""Weight left of a step with each further one."""
_MIN_STEPS: Final = 16.0
_OUTLIER: Final = 4.0
"""A time between steps this many times the mean is a checkpoint or the like."""
_NEW_RHYTHM: Final = 8
"""Outliers in a row that are a new rhythm: then the old mean is forgotten."""
_DELAYS_FROM: Final = -0.3
_ABSORBED_BELOW: Final = -0.7
_MAX_ERROR: Final = 0.2
"""The largest standard error of a slope that is used."""
_MIN_DEVIATION_S: Final = 20e-6
"""Smaller variation is noise of the clock."""

_NO_SUMS: Final = (0.0,) * 6
"""Sums of weights, own times, step times, own², own · step and step²."""


class OwnTime:
    """Regression of one rank's step time on its own time between steps."""

    def __init__(self) -> None:
        self._sums: tuple[float, ...] = _NO_SUMS
        self._last_ns: int | None = None
        self._is_step = self._is_complete = False
        self._own_ns = self._step_ns = self._outliers = 0

    def ingest(self, records: RingRecords) -> None:
        """Ingest the new records of its ring, oldest first."""
        skipped = max(0, len(records) - _MAX_RECORDS)
        if skipped:
            self._is_complete = False
        codes, stamps_ns = codes_of(records), records.stamps_ns
        entered = records.kinds[:skipped].count(RingKind.ENTER)
        for at in range(skipped, len(records)):
            kind = records.kinds[at]
            if kind == RingKind.ENTER:
                self._until(stamps_ns[at])
                self._is_step = LABELS[codes[entered]].is_step
                entered += 1
            elif kind == RingKind.STEP:
                self._until(stamps_ns[at])
                if self._is_complete:
                    self._count(self._own_ns / 1e9, self._step_ns / 1e9)
                self._own_ns = self._step_ns = 0
                self._is_complete = True
            elif kind == RingKind.EPOCH:
                self._is_complete = False

    @property
    def delays(self) -> bool | None:
        """Whether the others wait for it; ``None``: its steps do not show it."""
        weight, sum_own, sum_step, sum_own_sq, sum_own_step, sum_step_sq = self._sums
        if weight < _MIN_STEPS:
            return None
        own_variance = sum_own_sq / weight - (sum_own / weight) ** 2
        step_variance = sum_step_sq / weight - (sum_step / weight) ** 2
        if own_variance <= _MIN_DEVIATION_S**2:
            return None
        slope = (sum_own_step / weight - sum_own * sum_step / weight**2) / own_variance
        error = sqrt(max(0.0, step_variance / own_variance - slope * slope) / (weight - 2))
        if error > _MAX_ERROR:
            return None
        if slope >= _DELAYS_FROM:
            return True
        return False if slope <= _ABSORBED_BELOW else None

    def _until(self, at_ns: int) -> None:
        if self._last_ns is not None:
            length_ns = max(0, at_ns - self._last_ns)
            if self._is_step:
                self._step_ns += length_ns
            else:
                self._own_ns += length_ns
        self._last_ns = at_ns

    def _count(self, own_s: float, step_s: float) -> None:
        weight, sum_own = self._sums[:2]
        if weight >= _MIN_STEPS and own_s > _OUTLIER * sum_own / weight:
            self._outliers += 1
            if self._outliers < _NEW_RHYTHM:
                return
            self._sums = _NO_SUMS
        self._outliers = 0
        new = (1.0, own_s, step_s, own_s * own_s, own_s * step_s, step_s * step_s)
        self._sums = tuple(
            total * _KEPT + value for total, value in zip(self._sums, new, strict=True)
        )
