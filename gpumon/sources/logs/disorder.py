"""Rows that are not those of one log in the order of time: what no clock does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gpumon.core.units import NS_PER_S
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.gpu_order import GpuOrder
from gpumon.sources.logs.shared_stamps import SharedStamps

_MOST_SHARE: Final = 0.2
"""Share of the rows that may be out of order: a column has its shape in the others, too."""
_MOST_SET_BACK: Final = 0.5
"""Share of the rows that may be of time which a clock tells again, set back more than once."""
_FEWEST_ROWS: Final = 10
"""Of fewer rows nothing is said: one late row would be a share of them."""
_QUICKEST_NS: Final = NS_PER_S // 50
"""Nobody logs a GPU more often: its driver looks back over a sixth of a second at least."""
_WAY_OUT: Final = (
    "give each log by itself, or say which column is meant: --column utilization.gpu=N"
)


def refuse_disorder(
    tracks: Collection[GpuOrder], shared: SharedStamps, rows: int, *, name: str, is_guessed: bool
) -> None:
    """Refuse a log whose stamps are not those of one log.

    Where a header or the user says what the columns are, time that is told again counts once.
    Where they were guessed by their shape, the stamps have to bear the guess out: those of one log
    rise, but for a clock that is set, and few rows of a GPU have the same one.

    Args:
        tracks: The GPUs of the log, which is over.
        shared: What was done with rows of the same stamp.
        rows: How many there were.
        name: What to call the log in sentences.
        is_guessed: Whether the columns were guessed.

    Raises:
        UnreadableLogError: They are not.
    """
    if rows < _FEWEST_ROWS:
        return
    turned_back = sum(track.unfolding.turned_back for track in tracks)
    if turned_back > _MOST_SHARE * rows:
        raise UnreadableLogError(
            f"{name}: the rows run back in time {turned_back:,} times in {rows:,} rows: sort them "
            "by their time, the oldest first"
        )
    again = sum(track.unfolding.walked_again for track in tracks)
    if again > _MOST_SET_BACK * rows:
        raise UnreadableLogError(
            f"{name}: the time runs back {turned_back:,} times, and {again:,} of {rows:,} rows are "
            "of a time that other rows had told of: these are several logs; give each by itself"
        )
    if not is_guessed:
        return
    again += sum(track.unfolding.told_twice for track in tracks) + shared.contradictions
    if again > _MOST_SHARE * (rows - shared.copies):
        raise UnreadableLogError(
            f"{name}: no header, and {again:,} of {rows:,} rows are of a time that other rows had "
            f"told of: these are several logs, or it is no log of a GPU; {_WAY_OUT}"
        )
    if shared.spread > _MOST_SHARE * rows and shared.period_ns < _QUICKEST_NS:
        raise UnreadableLogError(
            f"{name}: no header, and {shared.spread:,} of {rows:,} rows share their time with "
            f"more than {NS_PER_S // _QUICKEST_NS} others a second: these are several logs, or it "
            f"is no log of a GPU; {_WAY_OUT}"
        )
