"""That a GPU waits for another rank of its job, whatever it reads meanwhile."""

from __future__ import annotations

from typing import Final, NamedTuple

SUSPENDED: Final = "suspended"
"""The cause where the rank that is waited for is stopped, or frozen."""
ITS_STEP: Final = "train_step"
"""The cause where its step takes longer than those of the others."""


_KEPT: Final = 0.995
"""Of what was noted before, with each note: after five minutes of them, half of it counts."""


class RankWait(NamedTuple):
    """Whom the others of a job wait for, as of late.

    Attributes:
        run: Its run, by the label.
        rank: Its rank.
        cause: The ``IdleCause`` that makes it late, by its value; ``SUSPENDED`` or ``ITS_STEP``.
    """

    run: str
    rank: int
    cause: str


class RankWaits:
    """Which rank one GPU waits for most, of late and in its present job."""

    def __init__(self) -> None:
        self._job = 0
        self._waits_ns: dict[RankWait, float] = {}

    def note(self, wait: RankWait, amount_ns: int, job: int) -> None:
        """Note that it waited for that rank, in its job of that number."""
        kept = self._waits_ns if job == self._job else {}
        self._job = job
        self._waits_ns = {one: _KEPT * ns for one, ns in kept.items() if ns > 1}
        self._waits_ns[wait] = self._waits_ns.get(wait, 0.0) + amount_ns

    def most(self, job: int) -> RankWait | None:
        """The rank that it waited for most; ``None``: in that job it waited for none."""
        if job != self._job:
            return None
        return max(self._waits_ns, key=self._waits_ns.__getitem__, default=None)


class LastingExcess:
    """Amounts by which one thing exceeds another, from window to window, less what is noise.

    Each GPU has sample windows of its own, so that what a peer did in one of ours is known to
    about one of its windows only: two GPUs that pause in the same step seem busier than each
    other in turn. What fell short a moment ago therefore makes up for what exceeds now, by at
    most one window. An excess that lasts is hardly the smaller for it.

    >>> excess = LastingExcess()
    >>> [excess.of("GPU-1", amount, most_ns=100) for amount in (-30, 20, 30, -500, 50, 60)]
    [0, 0, 20, 0, 0, 10]
    """

    def __init__(self) -> None:
        self._short_ns: dict[str, int] = {}  # 0 or less

    def of(self, name: str, amount_ns: int, most_ns: int) -> int:
        """How much of an amount is in excess; to be asked once for each window.

        Args:
            name: Of what is compared.
            amount_ns: By how much it exceeds in this window; below 0: falls short.
            most_ns: The longest window of the two: no more is made up for.
        """
        amount_ns += self._short_ns.get(name, 0)
        self._short_ns[name] = min(0, max(amount_ns, -most_ns))
        return max(0, amount_ns)
