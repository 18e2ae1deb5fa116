"""Fair shares by owner where there is not room for all rings, series, lanes or inspections.

One rule: an owner who wants less than an equal share gets all of it, and what is left over goes
to the others in equal shares. So an owner with thousands of files crowds out only their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gpumon.core.wording import counted, listed

MAX_OWNERS_LISTED: Final = 16
"""Owners whose unread rings are counted separately; the others are summed up."""

MAX_RUNS_SHOWN: Final = 64
"""Runs that have series of their own, and a lane while they live."""
_MAX_REMEMBERED_TURNS: Final = 1_024
"""Four times as many as there are rings that are read."""
_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")


def guaranteed_share(owners: int, slots: int) -> int:
    """The share of one of so many owners that no other owner can take."""
    return max(1, slots // max(1, owners))


_Owner = TypeVar("_Owner", int, int | None)


def fair_shares(wanted: Mapping[_Owner, int], slots: int) -> dict[_Owner, int]:
    """How many of the slots each owner gets.

    Slots that cannot be shared equally go to the first owners. With more owners than slots,
    the first ones get one each.

    Args:
        wanted: How many each owner wants, in the order of precedence.
        slots: How many there are.

    >>> fair_shares({1000: 300, 1001: 2}, 256)
    {1000: 254, 1001: 2}
    >>> fair_shares({1000: 300, 1001: 300, 1002: 300}, 256)
    {1000: 86, 1001: 85, 1002: 85}
    """
    shares = dict.fromkeys(wanted, 0)
    wanting = [owner for owner, count in wanted.items() if count > 0]
    free_slots = slots
    while wanting and free_slots >= len(wanting):
        more = free_slots // len(wanting)
        for owner in wanting:
            added = min(more, wanted[owner] - shares[owner])
            shares[owner] += added
            free_slots -= added
        wanting = [owner for owner in wanting if shares[owner] < wanted[owner]]
    for owner in wanting[:free_slots]:
        shares[owner] += 1
    return shares


def choose_fairly(
    items: Iterable[_Item],
    owner_of: Callable[[_Item], _Owner],
    slots: int,
    unlisted: Mapping[_Owner, int] | None = None,
) -> list[_Item]:
    """Choose each owner's first items, as many as its fair share.

    Args:
        items: In the order of precedence, of owners too; the result keeps it.
        owner_of: Returns the owner of an item.
        slots: How many can be chosen.
        unlisted: How many more items each owner has that are not listed.
    """
    items = [*items]
    wanted = Counter(owner_of(item) for item in items)
    wanted.update(unlisted or {})
    remaining = fair_shares(wanted, slots)
    chosen = []
    for item in items:
        owner = owner_of(item)
        if remaining[owner]:
            remaining[owner] -= 1
            chosen.append(item)
    return chosen


class RingCandidate(NamedTuple):
    """A ring file that may be read.

    Attributes:
        place: Folder, name and inode.
        changed_ns: Change time of the file when it was first seen. It decides which ring is
            older, because only the superuser can set it.
        freed_ns: CLOCK_MONOTONIC when its run was seen to have ended; ``None``: not so far.
    """

    place: tuple[str, str, int]
    owner_uid: int
    changed_ns: int
    freed_ns: int | None = None


class RingChoice(NamedTuple):
    """Which rings are read.

    Attributes:
        given_up: Rings of ended runs that make room.
        left_out: How many other rings of each owner are not read.
        is_fair: Whether every owner has its guaranteed share. With more owners than slots,
            some do not.
    """

    taken: tuple[RingCandidate, ...]
    given_up: tuple[RingCandidate, ...]
    left_out: Mapping[int, int]
    is_fair: bool


def choose_rings(
    candidates: Iterable[RingCandidate], slots: int, unlisted: Mapping[int, int] | None = None
) -> RingChoice:
    """Choose the rings to read.

    Of one owner, rings of ended runs make room first, the one that ended longest ago before the
    others; then the newest ring is left out first, whether it is already read or not.

    Args:
        candidates: Every ring; of an owner with very many, the oldest ones.
        slots: How many can be read.
        unlisted: How many newer rings of each owner are not among the candidates.
    """
    ranked = sorted(candidates, key=_importance)
    taken = choose_fairly(ranked, attrgetter("owner_uid"), slots, unlisted)
    places = {one.place for one in taken}
    others = [one for one in ranked if one.place not in places]
    left_out = Counter(one.owner_uid for one in others if one.freed_ns is None)
    left_out.update(unlisted or {})
    wanted = Counter(one.owner_uid for one in ranked)
    wanted.update(unlisted or {})
    given = Counter(one.owner_uid for one in taken)
    guaranteed = guaranteed_share(len(wanted), slots)
    return RingChoice(
        tuple(taken),
        tuple(one for one in others if one.freed_ns is not None),
        +left_out,
        all(given[owner] >= min(guaranteed, count) for owner, count in wanted.items()),
    )


@dataclass(frozen=True, slots=True)
class RunCandidate(Generic[_Key]):
    """A run that may have a slot: a label in ``/metrics``, a lane.

    Attributes:
        owner_uid: User that owns the run; ``None``: unknown.
        is_alive: Whether it lives, or has only just ended.
        written_ns: CLOCK_MONOTONIC when it last recorded something.
    """

    key: _Key
    owner_uid: int | None
    is_alive: bool
    written_ns: int


class FairSlots(Generic[_Key]):
    """A number of slots for runs, shared fairly by owner: living runs first, then ended ones.

    Within its owner's share, a run keeps its slot; then come the runs that recorded something
    last. With more owners than slots, owners that already have one come first.

    Attributes:
        left_out: How many living runs of each owner had no slot in the last choice.
    """

    def __init__(self, slots: int, *, up_to_ended: int | None = None) -> None:
        """Ended runs fill the slots up to ``up_to_ended``; by default, all of them."""
        self._slots = slots
        self._up_to_ended = slots if up_to_ended is None else up_to_ended
        self._holders: frozenset[_Key] = frozenset()
        self.left_out: Mapping[int | None, int] = {}

    def choose(self, runs: Collection[RunCandidate[_Key]]) -> frozenset[_Key]:
        ranked = sorted(runs, key=lambda run: (run.key not in self._holders, -run.written_ns))
        living = [run for run in ranked if run.is_alive]
        ended = [run for run in ranked if not run.is_alive]
        chosen = self._fill(living, self._slots)
        self._holders = chosen | self._fill(ended, max(0, self._up_to_ended - len(chosen)))
        self.left_out = dict(Counter(run.owner_uid for run in living if run.key not in chosen))
        return self._holders

    def _fill(self, runs: Sequence[RunCandidate[_Key]], slots: int) -> frozenset[_Key]:
        return frozenset(run.key for run in choose_fairly(runs, attrgetter("owner_uid"), slots))


class FairTurns(Generic[_Key]):
    """A number of turns a tick, shared fairly by owner; who waited longest comes first."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._count = 0
        self._last: dict[_Key, int] = {}  # number of the newest turn, the oldest of them first

    def choose(self, owner_of: Mapping[_Key, int]) -> list[_Key]:
        """Return whose turn it is, in order; the caller notes each turn that is really taken.

        Args:
            owner_of: The uid of each run that wants a turn, by the run's key.
        """
        waiting = sorted(owner_of, key=lambda key: self._last.get(key, 0))
        if len(waiting) <= self._turns:
            return waiting
        return choose_fairly(waiting, owner_of.__getitem__, self._turns)

    def note(self, key: _Key) -> None:
        self._count += 1
        self._last.pop(key, None)
        self._last[key] = self._count
        if len(self._last) > _MAX_REMEMBERED_TURNS:
            del self._last[next(iter(self._last))]


def largest_owners(counts: Mapping[Any, int]) -> tuple[tuple[int | None, int], ...]:
    """Owners and counts, the largest first; those beyond ``MAX_OWNERS_LISTED`` under ``None``.

    >>> largest_owners({1000: 3, 65534: 400})
    ((65534, 400), (1000, 3))
    """
    ranked = sorted(counts.items(), key=lambda owner: (-owner[1], owner[0] or 0))
    others = sum(count for _, count in ranked[MAX_OWNERS_LISTED:])
    return (*ranked[:MAX_OWNERS_LISTED], *(((None, others),) if others else ()))


def owner_counts_text(counts: Sequence[tuple[int | None, int]]) -> str:
    """List counts by owner.

    >>> owner_counts_text(((65534, 400), (None, 3)))
    '400 of uid 65534 and 3 of others'
    """
    texts = [f"{n:,} of {'others' if uid is None else f'uid {uid}'}" for uid, n in counts]
    return listed(texts, most=5)


def left_out_message(left_out: Sequence[tuple[int | None, int]], slots: int) -> str:
    """Whose rings are not read, and why.

    >>> left_out_message(((65534, 400), (1000, 1)), 256)
    '401 phase rings are not read, for there are more than 256: 400 of uid 65534 and 1 of uid 1000'
    """
    total = sum(count for _, count in left_out)
    what = counted(total, "phase ring is", "phase rings are")
    return f"{what} not read, for there are more than {slots:,}: {owner_counts_text(left_out)}"


def _importance(ring: RingCandidate) -> tuple[bool, int, tuple[str, str, int]]:
    if ring.freed_ns is None:
        return False, ring.changed_ns, ring.place
    return True, -ring.freed_ns, ring.place
