"""One look at every ring there is, for whoever does not stay: nothing is followed or removed."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S, Clock
from gpumon.core.ring_format.events import RingReading
from gpumon.core.ring_format.fair_share import RingClaim, fair_choice, told_by_owner
from gpumon.errors import RingError
from gpumon.sources.ring_reader.ring_file import BEING_MADE_NS, RingNotReadyError
from gpumon.sources.ring_reader.ring_folder import (
    MOST_FOLDERS,
    FolderListing,
    RingOpener,
    claims_in,
    folders_to_read,
    refusal_of,
)

_MOST_RINGS: Final = 16_384
_LIST_NS: Final = NS_PER_S
_READ_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RingsSeen:
    """What one look at the rings found.

    Attributes:
        alive: Of each training that lives, what its ring says; without records.
        ended: How many rings are of trainings that have ended.
        refused: How many must not be trusted or cannot be opened, by uid, the
            most first; under ``None``, those of further owners.
        refusal: Why the last one was refused, with its name.
        unread: How many were not read, for there are too many; as ``refused``.
        is_listed: Whether all names in all folders were looked at.
    """

    alive: tuple[RingReading, ...]
    ended: int
    refused: tuple[tuple[int | None, int], ...]
    refusal: str | None
    unread: tuple[tuple[int | None, int], ...]
    is_listed: bool


@dataclass(slots=True)
class _Look:
    opener: RingOpener
    clock: Clock
    alive: list[RingReading] = field(default_factory=list)
    ended: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    refusal: str | None = None

    def read(self, claim: RingClaim) -> None:
        try:
            reading = self._reading_of(claim)
        except FileNotFoundError:
            return
        except (RingError, OSError) as error:
            age_ns = time.time_ns() - claim.changed_ns
            if not isinstance(error, RingNotReadyError) or age_ns >= BEING_MADE_NS:
                self.refused[claim.owner_uid] += 1
                self.refusal = refusal_of(claim.place, error)
            return
        if reading is not None and reading.alive:
            self.alive.append(reading)
        elif reading is not None:
            self.ended += 1

    def _reading_of(self, claim: RingClaim) -> RingReading | None:
        now_ns = self.clock.monotonic_ns()
        ring = self.opener.open(claim.place, now_ns)
        if ring is None:
            return None
        with contextlib.closing(ring):
            return ring.read(now_ns, max_records=0)


def look_at_rings(directories: Iterable[str | Path], *, boot_id: str, clock: Clock) -> RingsSeen:
    """Read every ring once that lies in folders that fit: up to 16,384, and for 3 s at most.

    A ring is closed as soon as its lock was asked, so no number of dead ones
    takes the place of one that lives. Where time or number do not suffice,
    each owner has his fair part, and of his rings the newest are read first.
    """
    claims, unnamed, is_listed = _listed(directories, clock)
    choice = fair_choice(claims, _MOST_RINGS, unnamed)
    unread = Counter(choice.left_out)
    give_up_ns = clock.monotonic_ns() + _READ_NS
    with contextlib.closing(RingOpener(boot_id, set())) as opener:
        look = _Look(opener, clock)
        for claim in _in_turns(choice.taken):
            if clock.monotonic_ns() < give_up_ns:
                look.read(claim)
            else:
                unread[claim.owner_uid] += 1
    return RingsSeen(
        alive=tuple(look.alive),
        ended=look.ended,
        refused=told_by_owner(look.refused),
        refusal=look.refusal,
        unread=told_by_owner(unread),
        is_listed=is_listed,
    )


def _listed(
    directories: Iterable[str | Path], clock: Clock
) -> tuple[list[RingClaim], dict[int, int], bool]:
    """The rings by name, how many more each owner has, and whether that are all."""
    folders = list(islice(folders_to_read(map(str, directories)), MOST_FOLDERS + 1))
    listings = [FolderListing(folder, _MOST_RINGS) for folder in folders[:MOST_FOLDERS]]
    going_on = listings
    give_up_ns = clock.monotonic_ns() + _LIST_NS
    # In turns: a folder that somebody fills keeps no other from being listed.
    while going_on and clock.monotonic_ns() < give_up_ns:
        going_on = [listing for listing in going_on if _goes_on(listing, clock)]
    claims, unnamed = claims_in(listings)
    for listing in listings:
        listing.close()
    return claims, unnamed, not going_on and len(folders) <= MOST_FOLDERS


def _goes_on(listing: FolderListing, clock: Clock) -> bool:
    """List some more of a folder; whether there is more to list."""
    try:
        listing.go_on(clock.monotonic_ns(), (), ())
    except OSError:  # it may not be looked into
        return False
    return not listing.whole_since_ns


def _in_turns(claims: Sequence[RingClaim]) -> Iterator[RingClaim]:
    """One of each owner after the other, of each the newest first."""
    by_owner: defaultdict[int, list[RingClaim]] = defaultdict(list)
    for claim in reversed(claims):
        by_owner[claim.owner_uid].append(claim)
    for turn in zip_longest(*by_owner.values()):
        yield from (claim for claim in turn if claim is not None)
