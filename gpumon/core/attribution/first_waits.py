"""Waits for input that are paid once: for a run's first batch, and at the start of each epoch.

No verdict rests on the first one, and a loader that starts again makes each of the others late.
"""

from __future__ import annotations

from typing import Final

from gpumon.core.attribution.span_labels import EPOCH_WAIT_CODE, INPUT_WAIT_CODE, LABELS
from gpumon.core.ring_format.events import LOOP_BEGAN, RingKind, RingRecords

NEVER: Final = 1 << 63
"""Later than any time of CLOCK_MONOTONIC."""
_SAME_WAIT_NS: Final = 10_000_000
"""Closer waits are one: a loader is created, then its first batch is requested."""


class FirstBatch:
    """Finds the end of the wait for the first batch.

    The wait ends at the first counted step, at the first step phase or validation, or
    when a second wait begins after the GPU was active, whichever comes first.

    Attributes:
        over_ns: When it ended, CLOCK_MONOTONIC; ``NEVER`` while it has not.
        counts_until_ns: Waits for input before this are known to be for the first batch.
        first_ended_ns: When the first wait ended; ``None``: it has not begun, or still lasts.
    """

    def __init__(self) -> None:
        self.over_ns = NEVER
        self.counts_until_ns = NEVER
        self.first_ended_ns: int | None = None
        self._is_waiting = False
        self._was_active = False  # after the first wait

    def end(self, at_ns: int) -> None:
        """The first batch had come by ``at_ns`` at the latest."""
        self.over_ns = min(self.over_ns, at_ns)
        self.counts_until_ns = self.over_ns

    def enter(self, start_ns: int, *, is_input_wait: bool, is_step: bool) -> None:
        """Begin a phase; ``is_step``: the device gets work in it."""
        if is_step:
            self.end(start_ns)
        elif not is_input_wait:
            if self._is_waiting and self.first_ended_ns is None:
                self.first_ended_ns = start_ns
        elif self.first_ended_ns is not None:
            self._enter_later_wait(start_ns, self.first_ended_ns)
        self._is_waiting = is_input_wait

    def note_activity(self) -> None:
        """Note that the GPU was active after the first wait: the next one is for a second batch."""
        self._was_active = True

    def _enter_later_wait(self, start_ns: int, first_ended_ns: int) -> None:
        if self._was_active:
            self.end(start_ns)
        elif start_ns - first_ended_ns < _SAME_WAIT_NS and self.counts_until_ns == NEVER:
            self.first_ended_ns = None
        else:
            self.counts_until_ns = min(self.counts_until_ns, start_ns)


class EpochStarts:
    """Marks waits at the start of a run's epochs, except the first."""

    def __init__(self) -> None:
        self._has_worked = self._is_start = False

    def mark_waits(self, records: RingRecords, codes: bytes, before: bytearray) -> bytes:
        """The codes of new records, with the waits at the start of epochs marked.

        Args:
            records: New records of the ring.
            codes: A byte for each phase that they enter.
            before: Codes of the phases before; the newest is marked in place if an epoch
                begins in it.
        """
        if not self._is_start and not _has_epoch_start(records):
            self._has_worked = self._has_worked or RingKind.STEP in records.kinds
            return codes
        marked, newest = bytearray(codes), -1
        for at, kind in enumerate(records.kinds):
            if kind == RingKind.ENTER:
                newest += 1
                if marked[newest] == INPUT_WAIT_CODE and self._is_start:
                    marked[newest] = EPOCH_WAIT_CODE
                elif LABELS[marked[newest]].is_step:
                    self._is_start = False
            elif kind == RingKind.STEP:
                self._is_start, self._has_worked = False, True
            elif self._has_worked and _is_epoch_start(records, at):
                self._is_start = True
                present = marked if newest >= 0 else before
                if present and present[newest] == INPUT_WAIT_CODE:
                    present[newest] = EPOCH_WAIT_CODE
        return bytes(marked)


def _has_epoch_start(records: RingRecords) -> bool:
    if RingKind.EPOCH in records.kinds:
        return True
    return RingKind.EVENT in records.kinds and LOOP_BEGAN in records.values


def _is_epoch_start(records: RingRecords, at: int) -> bool:
    kind = records.kinds[at]
    return kind == RingKind.EPOCH or (kind == RingKind.EVENT and records.values[at] == LOOP_BEGAN)
