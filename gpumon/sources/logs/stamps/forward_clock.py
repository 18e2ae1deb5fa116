"""The stamps of one GPU on a clock that only runs forward, whatever the log's own clock did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from operator import sub
from statistics import median_low
from typing import Final

from gpumon.core.clock import NS_PER_S

WINDOW_ROWS: Final = 64
"""Rows of one GPU by which a row may come late and is still put back in its place."""
HOUR_NS: Final = 3_600 * NS_PER_S
_SUMMER_TIMES_NS: Final = (HOUR_NS, HOUR_NS // 2)
"""By how much clocks are put forward and back: an hour, on Lord Howe Island half of one."""
_LONGEST_RHYTHM_NS: Final = 300 * NS_PER_S
"""Rows further apart than that prove nothing about a jump of half an hour."""
_SMALL_STEP_NS: Final = 300 * NS_PER_S
"""A clock that runs back by less was set; by more, the log tells of the same time again."""
_RHYTHM_ROWS: Final = 33
_FAR_NS: Final = 2 * HOUR_NS
"""No summer time and no setting of a clock puts one row alone as far from both its neighbours."""
_ROWS_AROUND: Final = 8
_MOST_CHAPTERS: Final = 256


class ClockTurn(str, Enum):
    """What the clock of a log did."""

    SUMMER_BEGAN = "summer began"
    SUMMER_ENDED = "summer ended"
    SET_BACK = "set back"
    EARLIER_PART = "earlier part"


class ForwardClock:
    """Follows one GPU's stamps in file order.

    A row that comes a little late keeps its stamp. Where the clock itself
    turned, what follows goes on from where the log was; time that the log
    tells of a second time is dropped, and so is a row alone whose time is far
    from those of the rows around it.

    Args:
        has_summer_time: Whether the stamps are local time without a zone.

    Attributes:
        late: Rows that came after a later one and were kept.
        told_twice: Rows of a time that an earlier part of the log tells of.
        strays: Rows whose time is far from those around them.
        turns: How often each turn of the clock was met, with its nanoseconds.
        turned_back: How often it ran back, and it was no summer time.
        walked_again: Rows that were kept though their time was told before, as a clock that is
            set back tells it; the first time is not counted.
    """

    def __init__(self, *, has_summer_time: bool) -> None:
        self.late = 0
        self.told_twice = 0
        self.strays = 0
        self.turned_back = 0
        self.walked_again = 0
        self.turns: Counter[tuple[ClockTurn, int]] = Counter()
        self._has_summer_time = has_summer_time
        self._recent: list[int] = []
        self._newest_ns: int | None = None
        self._began_ns = 0
        self._zone_ns = 0
        self._chapter_ns = 0
        self._chapters: list[tuple[int, int]] = []
        self._until_ns: int | None = None
        self._set_back = 0
        self._set_back_from_ns = 0  # the stamp before the clock was last set back, as written

    def read_on(self, stamps_ns: Sequence[int], count: int) -> Sequence[int | None]:
        """The first ``count`` stamps on the forward clock, in file order.

        Args:
            stamps_ns: Stamps as written. Those after ``count`` are looked at
                to tell a late row from a clock that turned, and come again.
            count: How many are decided on now.

        Returns:
            Nanoseconds; ``None``: a row of a time that was told before, or a stray one.
        """
        decided = stamps_ns[:count]
        if not decided or self._means_what_it_says(decided):
            return decided
        forward: list[int | None] = []
        kept: list[int] = []
        for at, stamp_ns in enumerate(decided):
            if self._is_stray(stamps_ns, at):
                self.strays += 1
                forward.append(None)
                continue
            kept.append(stamp_ns)
            self._follow(stamps_ns, at)
            placed_ns = self._placed(stamp_ns + self._zone_ns)
            forward.append(placed_ns)
            if self._set_back > 1 and placed_ns is not None:
                self.walked_again += stamp_ns <= self._set_back_from_ns
        self._recent = [*self._recent, *kept][-_RHYTHM_ROWS:]
        return forward

    def _means_what_it_says(self, stamps_ns: Sequence[int]) -> bool:
        """Whether the clock just went on: nearly all of a log, seen at one glance.

        Row by row, a long log of one GPU would take a fifth longer to analyse.
        """
        if self._zone_ns or self._chapter_ns or self._chapters:
            return False
        steps_ns = list(map(sub, stamps_ns[1:], stamps_ns))
        steps_ns.append(stamps_ns[0] - (self._newest_ns or stamps_ns[0]))
        if min(steps_ns) < 0 or max(steps_ns) >= _SUMMER_TIMES_NS[-1]:
            return False
        if self._newest_ns is None:
            self._began_ns = stamps_ns[0]
        self._newest_ns = self._until_ns = stamps_ns[-1]
        self._recent = [*self._recent, *stamps_ns[-_RHYTHM_ROWS:]][-_RHYTHM_ROWS:]
        return True

    def _follow(self, stamps_ns: Sequence[int], at: int) -> None:
        true_ns = stamps_ns[at] + self._zone_ns
        if self._newest_ns is None:
            self._newest_ns = self._began_ns = true_ns
        elif true_ns < self._newest_ns:
            if self._is_late(stamps_ns, at, self._newest_ns):
                self.late += 1
            else:
                self._turn_back(stamps_ns, at, self._newest_ns)
        elif true_ns - self._newest_ns >= _SUMMER_TIMES_NS[-1] and self._has_summer_time:
            self._jump_forward(stamps_ns, at, self._newest_ns)

    def _is_stray(self, stamps_ns: Sequence[int], at: int) -> bool:
        """Whether a row is far from the newest one, and those after it go on from there."""
        if self._newest_ns is None:
            return False
        newest_ns = self._newest_ns - self._zone_ns
        is_within = self._began_ns - self._zone_ns <= stamps_ns[at] <= newest_ns
        if is_within or abs(stamps_ns[at] - newest_ns) <= _FAR_NS:
            return False
        rhythm_ns = self._rhythm_ns(self._recent, len(self._recent))
        far_ns = max(_FAR_NS, 2 * WINDOW_ROWS * rhythm_ns)
        following = stamps_ns[at + 1 : at + 1 + _ROWS_AROUND]
        going_on = sum(abs(stamp_ns - newest_ns) <= far_ns for stamp_ns in following)
        return abs(stamps_ns[at] - newest_ns) > far_ns and 4 * going_on >= 3 * max(
            len(following), 1
        )

    def _placed(self, true_ns: int) -> int | None:
        newest_ns = self._newest_ns = max(true_ns, self._newest_ns or true_ns)
        for began_ns, ended_ns in self._chapters:
            if began_ns <= true_ns <= ended_ns:
                self.told_twice += 1
                return None
            if self._began_ns <= ended_ns < true_ns == newest_ns:
                # Beyond a part that was told earlier: the log goes on from that part's end.
                self._chapter_ns = (self._until_ns or ended_ns) - ended_ns
                self._chapters = [one for one in self._chapters if one[1] > ended_ns]
                self._began_ns = ended_ns + 1
                break
        placed_ns = true_ns + self._chapter_ns
        self._until_ns = max(placed_ns, self._until_ns or placed_ns)
        return placed_ns

    def _is_late(self, stamps_ns: Sequence[int], at: int, newest_ns: int) -> bool:
        following = stamps_ns[at + 1 : at + 1 + WINDOW_ROWS]
        if any(stamp_ns + self._zone_ns >= newest_ns for stamp_ns in following):
            return True
        if len(following) == WINDOW_ROWS:
            return False
        # The log ends here: its last rows are late if they belong among those just before.
        before = sorted([*self._recent, *stamps_ns[:at]][-WINDOW_ROWS:])
        return bool(before) and min(stamps_ns[at:]) > before[0]

    def _turn_back(self, stamps_ns: Sequence[int], at: int, newest_ns: int) -> None:
        true_ns = stamps_ns[at] + self._zone_ns
        rhythm_ns = self._rhythm_ns(stamps_ns, at)
        step_ns = newest_ns - true_ns
        for summer_ns in _SUMMER_TIMES_NS if self._has_summer_time else ():
            if _keeps_pace(summer_ns - step_ns, rhythm_ns):
                self.turns[ClockTurn.SUMMER_ENDED, summer_ns] += 1
                self._zone_ns += summer_ns
                return
        self.turned_back += 1
        if true_ns > self._began_ns and step_ns <= _SMALL_STEP_NS:
            self._set_back += 1
            self._set_back_from_ns = newest_ns - self._zone_ns
            self.turns[ClockTurn.SET_BACK, step_ns + rhythm_ns] += 1
            self._zone_ns += step_ns + rhythm_ns
            return
        self._close_chapter(newest_ns)
        self._newest_ns = true_ns
        is_told = any(began_ns <= true_ns <= ended_ns for began_ns, ended_ns in self._chapters)
        if len(self._chapters) < _MOST_CHAPTERS and not is_told:
            self.turns[ClockTurn.EARLIER_PART, step_ns] += 1
            self._chapter_ns = (self._until_ns or newest_ns) + rhythm_ns - true_ns
        self._began_ns = true_ns

    def _close_chapter(self, ended_ns: int) -> None:
        """Keep the part that is over. Of more than can be kept, the last are one."""
        began_ns = self._began_ns
        if len(self._chapters) >= _MOST_CHAPTERS:
            last_began_ns, last_ended_ns = self._chapters.pop()
            began_ns, ended_ns = min(began_ns, last_began_ns), max(ended_ns, last_ended_ns)
        self._chapters.append((began_ns, ended_ns))

    def _jump_forward(self, stamps_ns: Sequence[int], at: int, newest_ns: int) -> None:
        step_ns = stamps_ns[at] + self._zone_ns - newest_ns
        rhythm_ns = self._rhythm_ns(stamps_ns, at)
        written_ns = newest_ns - self._zone_ns
        to_full_hour_ns = HOUR_NS - written_ns % HOUR_NS
        for summer_ns in _SUMMER_TIMES_NS:
            begins_on_the_hour = to_full_hour_ns <= step_ns - summer_ns
            if begins_on_the_hour and _keeps_pace(step_ns - summer_ns, rhythm_ns):
                self.turns[ClockTurn.SUMMER_BEGAN, summer_ns] += 1
                self._zone_ns -= summer_ns
                return

    def _rhythm_ns(self, stamps_ns: Sequence[int], at: int) -> int:
        """Usual time between two rows around a turn; 0 where nothing shows it."""
        before = [*self._recent, *stamps_ns[max(0, at - _RHYTHM_ROWS) : at]][-_RHYTHM_ROWS:]
        after = stamps_ns[at : at + _RHYTHM_ROWS]
        steps = [
            later - earlier
            for part in (before, list(after))
            for earlier, later in pairwise(part)
            if later > earlier
        ]
        return median_low(steps) if steps else 0


def _keeps_pace(residue_ns: int, rhythm_ns: int) -> bool:
    """Whether what is left of a jump is the usual time between two rows."""
    return 0 < rhythm_ns <= _LONGEST_RHYTHM_NS and rhythm_ns <= 2 * residue_ns <= 3 * rhythm_ns
