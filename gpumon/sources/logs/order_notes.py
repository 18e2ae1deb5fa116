"""What was done to the rows of a log so that they rise, in sentences."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gpumon.core.figures import plainly
from gpumon.core.units import seconds
from gpumon.sources.logs.clock_unfolding import WINDOW_ROWS, Turn
from gpumon.sources.logs.gpu_order import GpuOrder
from gpumon.sources.logs.shared_stamps import SharedStamps

_TURNED: Final = {
    Turn.SUMMER_BEGAN: "The clock was put forward by {span} (summer time) and the rows kept their "
    "pace: no time is missing there.",
    Turn.SUMMER_ENDED: "The clock was put back by {span} (summer time) and the rows kept their "
    "pace: read on as if it had not been.",
    Turn.SET_BACK: "The clock was set back by {span}: read on as if it had not been.",
    Turn.EARLIER_PART: "The log goes back by {span}, to a time before its first row: read on as if "
    "that had come next.",
}


def order_notes(tracks: Collection[GpuOrder], shared: SharedStamps) -> tuple[int, tuple[str, ...]]:
    """How many rows were dropped, and the sentences about them and about the clock."""
    turns: dict[tuple[Turn, str], int] = {}
    for track in tracks:
        for (turn, span_ns), count in track.unfolding.turns.items():
            key = turn, _span(span_ns)
            turns[key] = max(turns.get(key, 0), count)
    notes = [
        _TURNED[turn].format(span=span) + (f" ({count} times)" if count > 1 else "")
        for (turn, span), count in turns.items()
    ]
    late = sum(track.unfolding.late for track in tracks)
    too_late = sum(track.too_late for track in tracks)
    if late > too_late:
        notes.append(f"Put {_rows(late - too_late)} that came late back in order.")
    if shared.spread:
        notes.append(
            f"{_rows(shared.spread)} share their time with others, which the log writes too "
            f"coarsely: spread evenly, one every {plainly(seconds(shared.period_ns))} s."
        )
    told_twice = sum(track.unfolding.told_twice for track in tracks)
    strays = sum(track.unfolding.strays for track in tracks)
    dropped = (
        (shared.copies, "there twice"),
        (shared.contradictions, "of a moment that another row has"),
        (shared.standing, "while the clock stood still"),
        (too_late, f"that came more than {WINDOW_ROWS} rows late"),
        (strays, "whose time is far from those of the rows around"),
        (told_twice, "of a time that the log had told of before: it counts once"),
    )
    notes += [f"Dropped {_rows(count)} {why}." for count, why in dropped if count]
    return sum(count for count, _ in dropped), tuple(notes)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _span(span_ns: int) -> str:
    """A length of time in its largest whole unit.

    >>> _span(3_600_000_000_000), _span(1_800_000_000_000), _span(2_500_000_000)
    ('1 h', '30 min', '2.5 s')
    """
    span_s = seconds(span_ns)
    if span_s >= 3600 and span_s % 3600 == 0:
        return f"{span_s / 3600:g} h"
    if span_s >= 60 and span_s % 60 == 0:
        return f"{span_s / 60:g} min"
    return f"{span_s:,.4g} s" if span_s < 10_000 else f"{span_s:,.0f} s"
