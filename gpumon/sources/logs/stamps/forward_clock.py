"""The stamps of one GPU on a clock that only runs forward, whatever the log's own clock did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from operator import sub
from statistics import median_low
from typing import Final

from gpumon.core.clock import NS_PER_S

WINDOW_ROWS: Final = 64
"""Rows of one GPU by which a row may come late and is still put back in its place."""
_RHYTHM_ROWS: Final = 33
_FAR_NS: Final = 7_200 * NS_PER_S
"""No setting of a clock puts one row alone as far from both its neighbours."""
_ROWS_AROUND: Final = 8


class ForwardClock:
    """Follows one GPU's stamps in file order.

    A row that comes a little late keeps its stamp. Where time runs back, as where summer time ends
    or a clock is set, rows are dropped until it has come further than before, and so is a row alone
    whose time is far from those around it.

    Attributes:
        late: Rows that came after a later one and were kept.
        told_again: Rows dropped because time had run back.
        strays: Rows dropped because their time is far from those around them.
        turned_back: How often time ran back.
    """

    def __init__(self) -> None:
        self.late = self.told_again = self.strays = self.turned_back = 0
        self._recent: list[int] = []
        self._newest_ns: int | None = None
        self._last_back_ns: int | None = None  # of the last row, where time has run back

    def read_on(self, stamps_ns: Sequence[int], count: int) -> Sequence[int | None]:
        """The first ``count`` stamps on the forward clock, in file order.

        Args:
            stamps_ns: Stamps as written. Those after ``count`` are looked at
                to tell a late row from a clock that turned, and come again.
            count: How many are decided on now.

        Returns:
            Nanoseconds; ``None``: a row that is dropped.
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
            forward.append(self._placed(stamps_ns, at))
        self._recent = [*self._recent, *kept][-_RHYTHM_ROWS:]
        return forward

    def _means_what_it_says(self, stamps_ns: Sequence[int]) -> bool:
        """Whether the clock just went on: nearly all of a log, seen at one glance.

        Row by row, a long log of one GPU would take a fifth longer to analyse.
        """
        if self._last_back_ns is not None:
            return False
        steps_ns = list(map(sub, stamps_ns[1:], stamps_ns))
        steps_ns.append(stamps_ns[0] - (self._newest_ns or stamps_ns[0]))
        if min(steps_ns) < 0 or max(steps_ns) > _FAR_NS:
            return False
        self._newest_ns = stamps_ns[-1]
        self._recent = [*self._recent, *stamps_ns[-_RHYTHM_ROWS:]][-_RHYTHM_ROWS:]
        return True

    def _is_stray(self, stamps_ns: Sequence[int], at: int) -> bool:
        """Whether a row is far from the newest one, and those after it go on from there."""
        newest_ns = self._newest_ns
        if newest_ns is None or abs(stamps_ns[at] - newest_ns) <= _FAR_NS:
            return False
        far_ns = max(_FAR_NS, 2 * WINDOW_ROWS * self._rhythm_ns())
        following = stamps_ns[at + 1 : at + 1 + _ROWS_AROUND]
        going_on = sum(abs(stamp_ns - newest_ns) <= far_ns for stamp_ns in following)
        return abs(stamps_ns[at] - newest_ns) > far_ns and 4 * going_on >= 3 * max(
            len(following), 1
        )

    def _placed(self, stamps_ns: Sequence[int], at: int) -> int | None:
        stamp_ns, newest_ns, last_back_ns = stamps_ns[at], self._newest_ns, self._last_back_ns
        if (
            newest_ns is None
            or stamp_ns > newest_ns
            or (stamp_ns == newest_ns and not last_back_ns)
        ):
            self._newest_ns, self._last_back_ns = stamp_ns, None
            return stamp_ns
        if last_back_ns is None and self._is_late(stamps_ns, at, newest_ns):
            self.late += 1
            return stamp_ns
        self.turned_back += last_back_ns is None or stamp_ns < last_back_ns
        self._last_back_ns = stamp_ns
        self.told_again += 1
        return None

    def _is_late(self, stamps_ns: Sequence[int], at: int, newest_ns: int) -> bool:
        following = stamps_ns[at + 1 : at + 1 + WINDOW_ROWS]
        if any(stamp_ns >= newest_ns for stamp_ns in following):
            return True
        if len(following) == WINDOW_ROWS:
            return False
        # The log ends here: its last rows are late if they belong among those just before.
        before = sorted([*self._recent, *stamps_ns[:at]][-WINDOW_ROWS:])
        return bool(before) and min(stamps_ns[at:]) > before[0]

    def _rhythm_ns(self) -> int:
        """Usual time between two of the last rows; 0 where nothing shows it."""
        steps = [later - earlier for earlier, later in pairwise(self._recent) if later > earlier]
        return median_low(steps) if steps else 0
