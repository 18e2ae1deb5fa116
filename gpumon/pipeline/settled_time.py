"""Shares what one GPU's ledger settles between the runs and users that it is time of.

What a sample settles belongs to the runs at work in it; everything else belongs to no run. Users
are the owners of these runs and of the processes that the driver lists. So in every tick, what all
runs gained, no run included, is what the GPU's settled time grew by; so it is for users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.phase import IdleCause
from gpumon.core.sample import ProcessSample
from gpumon.core.state import UNOWNED, RunTimeKey, SettledTime, UserTimeKey
from gpumon.pipeline.tracked_run import TrackedRun

_PARTS_OF_A_RATIO = 1_000_000
"""A share of SM time as a whole number, so that parts of time add up to the nanosecond."""
_Owner = TypeVar("_Owner", bound=Hashable)


class TimeByOwner:
    """Gives what a ledger settles to the runs and users that it was settled for.

    Args:
        ledger: Of the GPU; new.
        counts_users: Whether users are wanted, too.
    """

    def __init__(self, ledger: GpuLedger, *, counts_users: bool) -> None:
        self._ledger, self._counts_users = ledger, counts_users
        self._busy_ns = 0
        self._idle_ns: dict[IdleCause, int] = {}
        self._runs: Sequence[TrackedRun] | None = None
        self._processes: Sequence[ProcessSample] | None = None
        self._listed_before: Sequence[ProcessSample] | None = None
        self._listed_at_ns = 0
        self._by_run: Counter[RunTimeKey] = Counter()
        self._by_user: Counter[UserTimeKey] = Counter()

    def note_processes(self, processes: Sequence[ProcessSample] | None, read_at_ns: int) -> None:
        """Note the newest list of the processes on the GPU; ``None``: there is none."""
        if read_at_ns != self._listed_at_ns:
            self._listed_before, self._listed_at_ns = self._processes, read_at_ns
        self._processes = processes

    def belongs_to(self, runs: Sequence[TrackedRun] | None) -> None:
        """From now on, what is settled is for the runs at work in a sample.

        Empty: no run is; ``None``: no sample settles it, but the end of a job.
        """
        if runs != self._runs:
            self._share_out()
            self._runs = runs

    def pop(self, uuid: str) -> SettledTime | None:
        """What was settled since the last call; ``None``: nothing was."""
        self._share_out()
        self._runs = None
        if not self._by_run:
            return None
        by_run, self._by_run = self._by_run, Counter()
        by_user, self._by_user = self._by_user, Counter()
        return SettledTime(uuid, by_run, by_user)

    def _share_out(self) -> None:
        grown_ns = self._grown_ns()
        if not grown_ns:
            return
        ratios = {process.pid: process.sm_ratio for process in self._processes or ()}
        labels = [(run.time_label, ratios.get(run.reading.host_pid)) for run in self._runs or ()]
        _add(self._by_run, grown_ns, labels or [(UNOWNED, None)])
        if self._counts_users:
            _add(self._by_user, grown_ns, [*self._ratios_by_user().items()] or [(None, None)])

    def _grown_ns(self) -> dict[IdleCause | None, int]:
        """What the ledger settled since the last call, by cause; ``None``: busy time."""
        (busy_ns, idle_ns), before_ns = self._ledger.settled_ns, self._idle_ns
        grown_ns: dict[IdleCause | None, int] = {}
        if busy_ns != self._busy_ns:
            grown_ns[None] = busy_ns - self._busy_ns
            self._busy_ns = busy_ns
        for cause, amount_ns in idle_ns.items():
            if amount_ns != before_ns.get(cause, 0):
                grown_ns[cause] = amount_ns - before_ns.get(cause, 0)
                before_ns[cause] = amount_ns
        return grown_ns

    def _ratios_by_user(self) -> dict[int, float | None]:
        """The users on the GPU, with their shares of SM time; ``None``: it is not known."""
        processes = self._processes
        if not processes and self._runs is not None:  # who has just left was there in the sample
            processes = self._listed_before
        ratios: dict[int, float | None] = {}
        for process in processes or ():
            if process.uid is not None:
                others, own = ratios.get(process.uid, 0.0), process.sm_ratio
                ratios[process.uid] = None if others is None or own is None else others + own
        for run in self._runs or ():
            ratios.setdefault(run.reading.owner_uid, None)
        return ratios


def _add(
    total_ns: Counter[tuple[_Owner, IdleCause | None]],
    grown_ns: Mapping[IdleCause | None, int],
    owners: Sequence[tuple[_Owner, float | None]],
) -> None:
    """Give busy time to each owner by its share of SM time, if all are known; else equally.

    Idle time is given equally.
    """
    equal = [1] * len(owners)
    for cause, amount_ns in grown_ns.items():
        shares = equal
        if cause is None and len(owners) > 1:
            known = [round(ratio * _PARTS_OF_A_RATIO) for _, ratio in owners if ratio is not None]
            shares = known if len(known) == len(owners) and any(known) else equal
        for (owner, _), part_ns in zip(owners, split(amount_ns, shares), strict=True):
            if part_ns:
                total_ns[owner, cause] += part_ns


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
