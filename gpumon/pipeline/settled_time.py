"""Whose time it is that one GPU's ledger settles: by run, and by user.

What a sample settles belongs to the runs at work in it; everything else belongs to no run. So in
every tick, what all runs gained, no run included, is what the GPU's settled time grew by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.phase import IdleCause
from gpumon.core.sample import ProcessSample
from gpumon.core.state import NO_RUN, SettledTime, TimeKey
from gpumon.pipeline.tracked_run import TrackedRun

_PARTS_OF_A_RATIO = 1_000_000
"""A share of SM time as a whole number, so that parts of time add up to the nanosecond."""


class TimeByRun:
    """Gives what a ledger settles to the runs that it was settled for.

    Attributes:
        processes: The processes on the GPU now, with their shares of SM time.
    """

    def __init__(self, ledger: GpuLedger) -> None:
        self._ledger = ledger
        self._busy_ns = 0
        self._idle_ns: dict[IdleCause, int] = {}
        self._runs: Sequence[TrackedRun] = ()
        self._by_run: Counter[TimeKey] = Counter()
        self.processes: Sequence[ProcessSample] = ()

    def belongs_to(self, runs: Sequence[TrackedRun]) -> None:
        """From now on, what is settled is for these runs; empty: for none."""
        if runs != self._runs:
            self._share_out()
            self._runs = runs

    def pop(self, uuid: str) -> SettledTime | None:
        """What was settled since the last call; ``None``: nothing was."""
        self.belongs_to(())
        self._share_out()
        if not self._by_run:
            return None
        by_run, self._by_run = self._by_run, Counter()
        return SettledTime(uuid, by_run)

    def _share_out(self) -> None:
        totals = self._ledger.idle_only()
        busy_ns, self._busy_ns = totals.busy_ns - self._busy_ns, totals.busy_ns
        idle_ns: dict[IdleCause, int] = {}
        before_ns = self._idle_ns
        for cause, amount_ns in totals.idle_ns.items():
            grown_ns = amount_ns - before_ns.get(cause, 0)
            if grown_ns:
                idle_ns[cause] = grown_ns
                before_ns[cause] = amount_ns
        if not busy_ns and not idle_ns:
            return
        labels = [run.time_label for run in self._runs] or [NO_RUN]
        if busy_ns:
            self._add(labels, None, split(busy_ns, self._sm_shares()))
        for cause, amount_ns in idle_ns.items():
            self._add(labels, cause, split(amount_ns, [1] * len(labels)))

    def _add(self, labels: Iterable[str], cause: IdleCause | None, parts_ns: Iterable[int]) -> None:
        for label, part_ns in zip(labels, parts_ns, strict=True):
            if part_ns:
                self._by_run[label, cause] += part_ns

    def _sm_shares(self) -> list[int]:
        """The runs' shares of SM time; equal ones where the driver does not report each."""
        equal = [1] * max(1, len(self._runs))
        if len(self._runs) < 2:
            return equal
        ratio_of = {process.pid: process.sm_ratio for process in self.processes}
        ratios = [ratio_of.get(run.reading.host_pid) for run in self._runs]
        shares = [round(ratio * _PARTS_OF_A_RATIO) for ratio in ratios if ratio is not None]
        return shares if len(shares) == len(ratios) and any(shares) else equal


def split(amount_ns: int, shares: Sequence[int]) -> list[int]:
    """Split an amount in proportion to whole shares, at least one of them above 0.

    The parts add up to the amount.

    >>> split(10, [1, 1, 1]), split(7, [0, 3, 1])
    ([3, 3, 4], [0, 5, 2])
    """
    total, passed, given_ns, parts_ns = sum(shares), 0, 0, []
    for share in shares:
        passed += share
        parts_ns.append(amount_ns * passed // total - given_ns)
        given_ns += parts_ns[-1]
    return parts_ns
