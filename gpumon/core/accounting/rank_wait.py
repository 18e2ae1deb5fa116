"""Waits of a GPU for another rank of its job, during which it may read as busy."""

from __future__ import annotations

from typing import Final, NamedTuple

SUSPENDED: Final = "suspended"
"""Cause: the late rank's process is stopped or frozen."""
ITS_STEP: Final = "train_step"
"""Cause: the late rank's step takes longer than those of the others."""

_KEPT: Final = 0.995
"""Weight left with each further note: after five minutes, a note counts half."""


class RankWait(NamedTuple):
    """The rank that the others of a job wait for.

    Attributes:
        cause: Why it is late: the value of an ``IdleCause``, ``SUSPENDED`` or ``ITS_STEP``.
    """

    run: str
    rank: int
    cause: str


class RankWaits:
    """Which rank one GPU has waited for most lately, in its present job."""

    def __init__(self) -> None:
        self._job = 0
        self._waits_ns: dict[RankWait, float] = {}

    def note(self, wait: RankWait, amount_ns: int, job: int) -> None:
        kept = self._waits_ns if job == self._job else {}
        self._job = job
        self._waits_ns = {one: _KEPT * ns for one, ns in kept.items() if ns > 1}
        self._waits_ns[wait] = self._waits_ns.get(wait, 0.0) + amount_ns

    def most(self, job: int) -> RankWait | None:
        """The rank that it waited for most in that job; ``None``: there is none."""
        if job != self._job:
            return None
        return max(self._waits_ns, key=self._waits_ns.__getitem__, default=None)


class LastingExcess:
    """How much one GPU lastingly exceeds another, from window to window.

    Each GPU has its own sample windows, so a peer's work in one of ours is known to about one
    window only: two GPUs that pause in the same step seem busier than each other in turn. A
    shortfall in the last windows therefore cancels an excess now, by at most one window. A
    lasting excess is hardly reduced by that.

    >>> excess = LastingExcess()
    >>> [excess.of("GPU-1", amount, max_ns=100) for amount in (-30, 20, 30, -500, 50, 60)]
    [0, 0, 20, 0, 0, 10]
    """

    def __init__(self) -> None:
        self._short_ns: dict[str, int] = {}  # 0 or less

    def of(self, name: str, amount_ns: int, max_ns: int) -> int:
        """The lasting excess in one window; call it once for each.

        Args:
            name: Name of the peer.
            amount_ns: Excess in this window; below 0: shortfall.
            max_ns: The longer window of the two: no more is cancelled.
        """
        amount_ns += self._short_ns.get(name, 0)
        self._short_ns[name] = min(0, max(amount_ns, -max_ns))
        return max(0, amount_ns)
