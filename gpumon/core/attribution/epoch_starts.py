"""Which waits for input are at the start of an epoch: a loader that starts anew makes each late."""

from __future__ import annotations

from gpumon.core.attribution.span_labels import EPOCH_WAIT_CODE, INPUT_WAIT_CODE, LABELS
from gpumon.core.ring_format.events import LOOP_BEGAN, RingKind, RingRecords


class EpochStarts:
    """Follows one run. The first epoch does not count: its wait is for the run's first batch."""

    def __init__(self) -> None:
        self._has_worked = self._is_start = False

    def told_apart(self, records: RingRecords, codes: bytes, before: bytearray) -> bytes:
        """The phases that these records enter, with the waits at the start of epochs marked.

        Args:
            records: The new ones of the ring.
            codes: A byte for each phase that they enter.
            before: Those of the phases before; the newest is marked in place where a loader
                starts its workers in it.
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
