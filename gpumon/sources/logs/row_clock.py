"""Stamps for a log that has none: its rows, counted."""

from __future__ import annotations

from gpumon.core.figures import plainly
from gpumon.core.units import NS_PER_S, seconds


class RowClock:
    """Counts the rows of each GPU, and gives each the time that rows before it took.

    Args:
        period_ns: Time between two rows of one GPU, as the user said;
            ``None``: a second is assumed.
    """

    def __init__(self, period_ns: int | None) -> None:
        self.period_ns = period_ns or NS_PER_S
        self._is_told = period_ns is not None
        self._rows: list[int] = []

    def next_ns(self, gpu: int) -> int:
        """Stamp of the next row of a GPU, by its position."""
        while gpu >= len(self._rows):
            self._rows.append(0)
        self._rows[gpu] += 1
        return self._rows[gpu] * self.period_ns

    @property
    def note(self) -> str:
        """What the report has to say of it."""
        said = "--period" if self._is_told else "assumed; --period changes it"
        return f"The log has no time stamps: {plainly(seconds(self.period_ns))} s a row ({said})."
