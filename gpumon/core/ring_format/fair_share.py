"""What each owner has where there is not room for all: of rings, series, lanes and looks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gpumon.core.wording import counted, listed

MOST_OWNERS_TOLD: Final = 16
"""Owners whose rings that are left out are told apart; what others have is one sum."""


MOST_RUNS_TOLD: Final = 64
"""Runs that have series of their own, and a lane while they live."""
_MOST_REMEMBERED: Final = 1_024
"""Runs whose newest turn is remembered: four times as many as there are rings that are read."""
_Key = TypeVar("_Key", bound=Hashable)


class RingClaim(NamedTuple):
    """One ring that wants to be read.

    Attributes:
        place: Folder, name and inode.
        owner_uid: Whose file it is.
        changed_ns: Its change time when it was first seen: what says which ring
            is older, as nobody but the superuser can set it.
        freed_ns: CLOCK_MONOTONIC when it was seen to have ended; ``None``: not so far.
    """

    place: tuple[str, str, int]
    owner_uid: int
    changed_ns: int
    freed_ns: int | None = None


class FairChoice(NamedTuple):
    """Which rings are read.

    Attributes:
        taken: Those that are, oldest owner first.
        given_up: Of the others, those that have ended: they make room.
        left_out: How many others each owner has that are not.
        is_fair: Whether nobody lacks a ring within his part, as all do who come
            after as many owners as there are places.
    """

    taken: tuple[RingClaim, ...]
    given_up: tuple[RingClaim, ...]
    left_out: Mapping[int, int]
    is_fair: bool


def part_of_each(owners: int, places: int) -> int:
    """What nobody can take from one of so many owners."""
    return max(1, places // max(1, owners))


_Owner = TypeVar("_Owner", int, int | None)


def fair_parts(wanted: Mapping[_Owner, int], places: int) -> dict[_Owner, int]:
    """How many of the places each owner has.

    Whoever wants less than an equal part has what he wants, and what he leaves
    goes to the others in equal parts again; places that cannot be shared
    equally go to the first. With more owners than places, the first have one each.

    Args:
        wanted: How many each owner wants, the oldest owner first.
        places: How many there are.

    >>> fair_parts({1000: 300, 1001: 2}, 256)
    {1000: 254, 1001: 2}
    >>> fair_parts({1000: 300, 1001: 300, 1002: 300}, 256)
    {1000: 86, 1001: 85, 1002: 85}
    """
    parts = dict.fromkeys(wanted, 0)
    wanting = [owner for owner, count in wanted.items() if count > 0]
    left = places
    while wanting and left >= len(wanting):
        more = left // len(wanting)
        for owner in wanting:
            given = min(more, wanted[owner] - parts[owner])
            parts[owner] += given
            left -= given
        wanting = [owner for owner in wanting if parts[owner] < wanted[owner]]
    for owner in wanting[:left]:
        parts[owner] += 1
    return parts


def fair_choice(
    claims: Iterable[RingClaim], places: int, unnamed: Mapping[int, int] | None = None
) -> FairChoice:
    """Choose the rings to read.

    Of one owner, rings that have ended make room first, the one that ended
    longest ago before the others; then the newest is left out first, whether it
    is read already or not. So whoever makes thousands of files loses only his own.

    Args:
        claims: Every ring; of an owner with very many, his oldest.
        places: How many can be read.
        unnamed: How many newer rings of an owner are not among the claims.
    """
    by_owner: defaultdict[int, list[RingClaim]] = defaultdict(list)
    for claim in sorted(claims, key=attrgetter("changed_ns", "place")):
        by_owner[claim.owner_uid].append(claim)
    left_out = Counter(unnamed or {})
    wanted = Counter({owner: len(own) for owner, own in by_owner.items()})
    wanted.update(left_out)
    parts = fair_parts(wanted, places)
    taken: list[RingClaim] = []
    given_up: list[RingClaim] = []
    for owner, own in by_owner.items():
        own.sort(key=_importance)
        taken += own[: parts[owner]]
        others = own[parts[owner] :]
        ended = [claim for claim in others if claim.freed_ns is not None]
        given_up += ended
        left_out[owner] += len(others) - len(ended)
    sure = part_of_each(len(wanted), places)
    return FairChoice(
        tuple(taken),
        tuple(given_up),
        +left_out,
        all(parts[owner] >= min(sure, count) for owner, count in wanted.items()),
    )


class RunClaim(NamedTuple, Generic[_Key]):
    """One run that wants a place: a label in ``/metrics``, a lane.

    Attributes:
        key: The run's own.
        owner_uid: Whose run it is; ``None``: unknown.
        is_alive: Whether it has not ended, or only a moment ago.
        written_ns: CLOCK_MONOTONIC when it last recorded something.
    """

    key: _Key
    owner_uid: int | None
    is_alive: bool
    written_ns: int


class FairPlaces(Generic[_Key]):
    """So many places for runs: of each owner a fair part, first of the living, then of the rest.

    Within its owner's part, a run keeps its place. Then come those that recorded something last.
    With more owners than places, those come first who have one already.

    Attributes:
        left_out: How many living runs of which owner have no place, since the last choice.
    """

    def __init__(self, places: int, *, up_to_ended: int | None = None) -> None:
        """Runs that have ended fill the places up to ``up_to_ended``, all of them by default."""
        self._places = places
        self._up_to_ended = places if up_to_ended is None else up_to_ended
        self._holders: frozenset[_Key] = frozenset()
        self.left_out: Mapping[int | None, int] = {}

    def choose(self, claims: Collection[RunClaim[_Key]]) -> frozenset[_Key]:
        """Which of these runs have a place; they come with the oldest owner first."""
        living = [claim for claim in claims if claim.is_alive]
        chosen = self._fill(living, self._places)
        over = [claim for claim in claims if not claim.is_alive]
        self._holders = chosen | self._fill(over, max(0, self._up_to_ended - len(chosen)))
        left_out = Counter(claim.owner_uid for claim in living if claim.key not in chosen)
        self.left_out = dict(left_out)
        return self._holders

    def _fill(self, claims: Collection[RunClaim[_Key]], places: int) -> frozenset[_Key]:
        if len(claims) <= places:
            return frozenset(claim.key for claim in claims)
        by_owner: defaultdict[int | None, list[RunClaim[_Key]]] = defaultdict(list)
        for claim in claims:
            by_owner[claim.owner_uid].append(claim)
        owners = sorted(by_owner, key=lambda owner: not any(map(self._has_place, by_owner[owner])))
        parts = fair_parts({owner: len(by_owner[owner]) for owner in owners}, places)
        chosen: list[_Key] = []
        for owner, own in by_owner.items():
            own.sort(key=lambda claim: (not self._has_place(claim), -claim.written_ns))
            chosen += [claim.key for claim in own[: parts[owner]]]
        return frozenset(chosen)

    def _has_place(self, claim: RunClaim[_Key]) -> bool:
        return claim.key in self._holders


class FairTurns(Generic[_Key]):
    """So many turns a tick, of which each owner has a fair part; who waited longest comes first."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._count = 0
        self._last: dict[_Key, int] = {}  # number of the newest turn, the oldest of them first

    def choose(self, owner_of: Mapping[_Key, int]) -> list[_Key]:
        """Whose turn it is, in order; the caller notes those that really have it.

        Args:
            owner_of: The uid of each run that wants a turn, by the run's key.
        """
        waiting = sorted(owner_of, key=lambda key: self._last.get(key, 0))
        if len(waiting) <= self._turns:
            return waiting
        left = fair_parts(Counter(owner_of[key] for key in waiting), self._turns)
        chosen = []
        for key in waiting:
            if left[owner_of[key]]:
                left[owner_of[key]] -= 1
                chosen.append(key)
        return chosen

    def note(self, key: _Key) -> None:
        """That run has its turn now."""
        self._count += 1
        self._last.pop(key, None)
        self._last[key] = self._count
        if len(self._last) > _MOST_REMEMBERED:
            del self._last[next(iter(self._last))]


def told_by_owner(left_out: Mapping[Any, int]) -> tuple[tuple[int | None, int], ...]:
    """Owner and count, the largest first; what lies beyond ``MOST_OWNERS_TOLD`` under ``None``.

    >>> told_by_owner({1000: 3, 65534: 400})
    ((65534, 400), (1000, 3))
    """
    counts = sorted(left_out.items(), key=lambda owner: (-owner[1], owner[0] or 0))
    others = sum(count for _, count in counts[MOST_OWNERS_TOLD:])
    return (*counts[:MOST_OWNERS_TOLD], *(((None, others),) if others else ()))


def left_out_sentence(told: Sequence[tuple[int | None, int]], places: int) -> str:
    """Whose rings are not read, and why.

    >>> left_out_sentence(((65534, 400), (1000, 1)), 256)
    '401 phase rings are not read, for there are more than 256: 400 of uid 65534 and 1 of uid 1000'
    """
    total = sum(count for _, count in told)
    whose = [f"{n:,} of {'others' if uid is None else f'uid {uid}'}" for uid, n in told]
    what = counted(total, "phase ring is", "phase rings are")
    return f"{what} not read, for there are more than {places:,}: {listed(whose, most=5)}"


def _importance(claim: RingClaim) -> tuple[bool, int, tuple[str, str, int]]:
    if claim.freed_ns is None:
        return False, claim.changed_ns, claim.place
    return True, -claim.freed_ns, claim.place
