"""What a GPU waited for before a run's first work on it: told once that work has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from typing import Final

from gpumon.core.attribution.idle_sharing import SharedIdle, share_idle
from gpumon.core.sample import BusySample
from gpumon.pipeline.runs import TrackedRun, parts_of, with_reasons

_NOTHING: Final = SharedIdle({})


class AwaitedWork:
    """Idle time of one GPU while runs have yet to use it, by what they did meanwhile.

    A phase is asked only once it is over: what it held, such as compiling, is told at its end.
    Memory is constant, however long nothing comes. The runs of each user have an account of
    their own beside that of all: whose work comes is known only then.
    """

    def __init__(self) -> None:
        self._of_owner: dict[int, _Account] = {}
        self._all: _Account | None = None  # of several owners; None: of one, or no longer known

    def __bool__(self) -> bool:
        return bool(self._of_owner)

    def add(self, sample: BusySample, runs: Sequence[TrackedRun]) -> None:
        """Take one more inactive sample, oldest first, and who may use the GPU."""
        of_owner = self._of_owner
        owners = dict.fromkeys(run.reading.owner_uid for run in runs)
        if len(of_owner) == 1 and (len(owners) > 1 or not owners.keys() <= of_owner.keys()):
            self._all = copy(next(iter(of_owner.values())))
        elif not of_owner and len(owners) > 1:
            self._all = _Account()
        if self._all is not None:
            self._all.add(sample, runs)
        for owner in owners:
            own = [run for run in runs if run.reading.owner_uid == owner]
            of_owner.setdefault(owner, _Account()).add(sample, own)

    def take(self, runs: Sequence[TrackedRun]) -> SharedIdle:
        """All of it, by cause: the work of these runs has come."""
        of_owner = self._of_owner
        if not of_owner:
            return _NOTHING
        owners = {run.reading.owner_uid for run in runs} & of_owner.keys()
        if self._all is not None and owners == of_owner.keys():
            said = self._all.take(runs)
        else:
            each = [
                of_owner[owner].take([run for run in runs if run.reading.owner_uid == owner])
                for owner in sorted(owners)
            ]
            said = each[0] if len(each) == 1 else _mean(each)
        self.forget()
        return said

    def drop(self, owners: Iterable[int]) -> None:
        """These users' runs do not count: it was not their work that was waited for."""
        for owner in owners:
            if self._of_owner.pop(owner, None) is not None:
                self._all = None

    def forget(self) -> None:
        """Nobody will come for it."""
        self._of_owner.clear()
        self._all = None


class Awaiting:
    """For whom the idle time of a GPU is pending: how much, by the users who waited then."""

    def __init__(self) -> None:
        self._ns_of: Counter[frozenset[int]] = Counter()
        self._awaited_ns = 0

    @property
    def owners(self) -> frozenset[int]:
        """Everybody who waited at some time."""
        return frozenset().union(*self._ns_of)

    def note(self, owners: frozenset[int], awaited_ns: int) -> None:
        """Take how much is pending now, of which these users waited for what is new."""
        if awaited_ns < self._awaited_ns:  # what was pending is settled
            self._ns_of.clear()
            self._awaited_ns = 0
        if awaited_ns > self._awaited_ns:
            self._ns_of[owners] += awaited_ns - self._awaited_ns
        self._awaited_ns = awaited_ns

    def drop(self, owners: Collection[int]) -> int:
        """How much nobody else waited for, once these are gone, nanoseconds."""
        left: Counter[frozenset[int]] = Counter()
        for waited, length_ns in self._ns_of.items():
            left[waited.difference(owners)] += length_ns
        dropped_ns = left.pop(frozenset(), 0)
        self._ns_of = left
        self._awaited_ns -= dropped_ns
        return dropped_ns


class _Account:
    """Idle time before the first work of some runs."""

    def __init__(self) -> None:
        self._from_ns = self._until_ns = self._busy_ns = 0
        self._said = _NOTHING

    def add(self, sample: BusySample, runs: Sequence[TrackedRun]) -> None:
        start_ns, end_ns, busy_ratio = sample
        if start_ns != self._until_ns:
            self._ask(self._until_ns, runs)
            self._from_ns = start_ns
        self._until_ns = end_ns
        self._busy_ns += round((end_ns - start_ns) * busy_ratio)
        self._ask(min(end_ns, *(run.timeline.open_since_ns for run in runs)), runs)

    def take(self, runs: Sequence[TrackedRun]) -> SharedIdle:
        self._ask(self._until_ns, runs)
        return self._said

    def _ask(self, until_ns: int, runs: Sequence[TrackedRun]) -> None:
        length_ns = until_ns - self._from_ns
        if length_ns <= 0:
            return
        busy_ns = min(self._busy_ns, length_ns)
        parts = parts_of(runs, self._from_ns, until_ns)
        shared = share_idle(length_ns - busy_ns, parts, wholly_idle=True)
        self._said = self._said.plus(with_reasons(shared, runs, self._from_ns, until_ns))
        self._busy_ns -= busy_ns
        self._from_ns = until_ns


def _mean(each: Collection[SharedIdle]) -> SharedIdle:
    """Idle time that several waited for is split equally between them."""
    total = _NOTHING
    for one in each:
        total = total.plus(one)
    count = max(1, len(each))
    idle_ns = {cause: amount_ns // count for cause, amount_ns in total.idle_ns.items()}
    reasons_ns = {key: amount_ns // count for key, amount_ns in total.reasons_ns.items()}
    amounts_ns = (amount_ns // count for amount_ns in total.amounts_ns)
    mean = SharedIdle(idle_ns, reasons_ns, *amounts_ns)
    # Of several phases at once none is proved: see ``share_idle``.
    return mean if len(idle_ns) == 1 else mean._replace(resolved_ns=0)
