"""When a run's wait for its very first batch ends: it is paid once, so no verdict rests on it."""

from __future__ import annotations

from typing import Final

NEVER: Final = 1 << 63
"""Later than any instant of CLOCK_MONOTONIC."""
_SAME_WAIT_NS: Final = 10_000_000
"""Two waits closer together than this are one: a loader is made, then asked for a batch."""


class FirstBatch:
    """Finds the end of the wait for the first batch, from spans of phases in the order they begin.

    The wait ends at the first step that is counted, at the first step phase or validation, or
    where a second wait begins after the GPU was active, whichever comes first.

    Attributes:
        over_ns: When it ended, CLOCK_MONOTONIC; ``NEVER`` while it has not.
        counts_until_ns: Up to here, waits for input are known to be for the first batch.
    """

    def __init__(self) -> None:
        self.over_ns = NEVER
        self.counts_until_ns = NEVER
        self._first_ended_ns: int | None = None
        self._is_waiting = False
        self._was_active = False  # after the first wait

    @property
    def first_ended_ns(self) -> int | None:
        """When the first wait ended; ``None`` where it has not begun or still lasts."""
        return self._first_ended_ns

    def end(self, at_ns: int) -> None:
        """The first batch had come by ``at_ns`` at the latest."""
        self.over_ns = min(self.over_ns, at_ns)
        self.counts_until_ns = self.over_ns

    def enter(self, start_ns: int, *, is_input_wait: bool, is_step: bool) -> None:
        """A phase begins; ``is_step``: the device is given work in it."""
        if is_step:
            self.end(start_ns)
        elif not is_input_wait:
            if self._is_waiting and self._first_ended_ns is None:
                self._first_ended_ns = start_ns
        elif self._first_ended_ns is not None:
            self._enter_later_wait(start_ns, self._first_ended_ns)
        self._is_waiting = is_input_wait

    def note_activity(self) -> None:
        """The GPU was active after the first wait: the next wait is for a second batch."""
        self._was_active = True

    def _enter_later_wait(self, start_ns: int, first_ended_ns: int) -> None:
        if self._was_active:
            self.end(start_ns)
        elif start_ns - first_ended_ns < _SAME_WAIT_NS and self.counts_until_ns == NEVER:
            self._first_ended_ns = None
        else:
            self.counts_until_ns = min(self.counts_until_ns, start_ns)
