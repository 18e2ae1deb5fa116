"""When the driver's sample rings of one GPU are drained: as seldom as nothing is lost. Pure logic.

A drain takes the driver more than a millisecond on an H100, for one new entry or for all. The
driver keeps a fixed number of entries: 71 there, 14 s at work. So a ring is drained after a third
of the time that it keeps: then a reader that hangs for 9 s loses nothing. After 4 s at most:
``rate()`` over a minute would err by more than 8 % otherwise.
"""

from __future__ import annotations

from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.errors import UsageError

LONGEST_NS: Final = 4 * NS_PER_S
_PARTS_OF_RING: Final = 3
_MOST_PARTS_ASKED_FOR: Final = 2
"""With ``--drain-every``, up to half of what the ring keeps."""

_FASTEST_NS: Final = NS_PER_S // 6
"""NVML documents sample periods from 1/6 s on; an idle GPU may be sampled less often."""

_LEARN_AGAIN_NS: Final = 60 * NS_PER_S


class DrainSchedule:
    """Decides when one GPU's rings are due.

    Attributes:
        kept_ns: How much time a full ring holds; 0: unknown, so each tick drains it.
        drained_at_ns: CLOCK_MONOTONIC of the last drain.
    """

    def __init__(self, period_ns: int, every_ns: int | None = None) -> None:
        """Drain at the first tick.

        Args:
            period_ns: Time between two ticks.
            every_ns: The user's choice; ``None``: a third of what the ring keeps.
        """
        self.kept_ns = 0
        self._period_ns, self._every_ns = period_ns, every_ns
        self.drained_at_ns = self._due_at_ns = self._learn_at_ns = 0

    @property
    def interval_ns(self) -> int:
        """The longest time between two drains; 0: each tick."""
        if self._every_ns is not None:
            return min(self._every_ns, self.kept_ns // _MOST_PARTS_ASKED_FOR)
        return min(LONGEST_NS, self.kept_ns // _PARTS_OF_RING)

    @property
    def wants_whole_ring(self) -> bool:
        """Whether the next drain should return known entries, too, to count all of them."""
        return not self._learn_at_ns

    def is_due(self, now_ns: int, *, is_dry: bool) -> bool:
        """Whether the next tick would come too late; a dry ring has nothing to lose."""
        due_at_ns = self._due_at_ns
        if is_dry and due_at_ns:
            due_at_ns = self.drained_at_ns + LONGEST_NS
        return now_ns > due_at_ns - self._period_ns * 9 // 10

    @property
    def quiet_until_ns(self) -> int:
        """Until when no tick drains it."""
        return self._due_at_ns - self._period_ns * 9 // 10

    def hurry(self) -> None:
        """Drain at the next tick."""
        self._due_at_ns = 0

    def learn(self, entry_count: int, step_ns: int, now_ns: int) -> None:
        """Learn how much the ring keeps, from all of its entries.

        Args:
            entry_count: How many there are. A ring may not have been full before.
            step_ns: The usual distance of two entries.
            now_ns: CLOCK_MONOTONIC.
        """
        if step_ns > 2 * _FASTEST_NS:
            step_ns = _FASTEST_NS  # which it may be at work
        self.kept_ns = max(self.kept_ns, entry_count * step_ns)
        self._learn_at_ns = now_ns + _LEARN_AGAIN_NS

    def check_choice(self) -> None:
        """Compare the user's choice with what the ring keeps.

        Raises:
            UsageError: It is longer than half of that.
        """
        most_ns = self.kept_ns // _MOST_PARTS_ASKED_FOR
        if self._every_ns is not None and 0 < most_ns < self._every_ns:
            raise UsageError(
                f"--drain-every {seconds(self._every_ns):g}: the driver keeps only "
                f"{seconds(self.kept_ns):.3g} s of samples; use at most {seconds(most_ns):.2g}"
            )

    def drained(self, now_ns: int, *, has_hole: bool, share: float = 1.0) -> None:
        """Plan the next drain.

        Args:
            now_ns: CLOCK_MONOTONIC.
            has_hole: Whether the oldest new entry does not touch the newest known one: the ring
                may keep less than was learnt.
            share: The part of the interval that the first plan takes, so that GPUs take turns.
        """
        self.drained_at_ns = now_ns
        self._due_at_ns = now_ns + int(self.interval_ns * share)
        is_short = self.kept_ns < _PARTS_OF_RING * LONGEST_NS
        if has_hole:
            self.kept_ns = 0
        if has_hole or (is_short and now_ns >= self._learn_at_ns):
            self._learn_at_ns = 0
