"""When a GPU's errors came: what the counts that it tells do not say. No clock, no I/O."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.sample import GpuDetails, GpuSample


class ErrorTimes(NamedTuple):
    """Errors of one GPU since it was first heard; of a lost one, too.

    Attributes:
        xid_last_ns: CLOCK_MONOTONIC of the tick with the newest error of each
            XID, as pairs of XID and time.
        memory_errors: Memory errors that could not be corrected, since the
            driver was loaded; ``None`` where the board does not tell.
        memory_error_last_ns: When there was one more; ``None``: all of them
            are from before, or there is none.
    """

    xid_last_ns: tuple[tuple[int, int], ...] = ()
    memory_errors: int | None = None
    memory_error_last_ns: int | None = None

    def moved(self, by_ns: int) -> ErrorTimes:
        """The same on a clock that is so much ahead."""
        last_ns = self.memory_error_last_ns
        return self._replace(
            xid_last_ns=tuple((xid, at_ns + by_ns) for xid, at_ns in self.xid_last_ns),
            memory_error_last_ns=None if last_ns is None else last_ns + by_ns,
        )


NO_ERRORS = ErrorTimes()


class ErrorWatch:
    """Follows one GPU from tick to tick.

    Attributes:
        errors: As of the newest tick.
    """

    def __init__(self) -> None:
        self.errors = NO_ERRORS
        self._xids: tuple[tuple[int, int], ...] = ()
        self._details: GpuDetails | None = None

    def hear(self, sample: GpuSample, at_ns: int) -> None:
        """Take what the GPU said in one tick; a source repeats the same objects until news."""
        if sample.xid_errors is not self._xids:
            self._take_xids(sample.xid_errors, at_ns)
        if sample.details is not self._details and sample.details is not None:
            self._take_details(sample.details, at_ns)

    def _take_xids(self, pairs: tuple[tuple[int, int], ...], at_ns: int) -> None:
        before, self._xids = dict(self._xids), pairs
        last_ns = dict(self.errors.xid_last_ns)
        last_ns.update({xid: at_ns for xid, count in pairs if count > before.get(xid, 0)})
        self.errors = self.errors._replace(xid_last_ns=tuple(sorted(last_ns.items())))

    def _take_details(self, details: GpuDetails, at_ns: int) -> None:
        self._details = details
        count, before = details.ecc_uncorrected_errors, self.errors.memory_errors
        if count is None or count == before:
            return
        last_ns = self.errors.memory_error_last_ns
        if before is not None and count > before:
            last_ns = at_ns
        # Fewer than before: the driver was loaded anew, or the GPU was reset.
        is_anew = before is not None and count < before
        self.errors = self.errors._replace(
            memory_errors=count, memory_error_last_ns=None if is_anew else last_ns
        )
