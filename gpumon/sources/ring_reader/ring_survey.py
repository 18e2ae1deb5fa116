"""Read every ring once, for a command that does not stay; nothing is followed or removed."""

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
from gpumon.core.owner_quotas import RingCandidate, choose_rings, largest_owners
from gpumon.core.ring_format.events import RingReading
from gpumon.errors import RingError
from gpumon.sources.ring_reader.open_ring import BEING_MADE_NS, RingNotReadyError
from gpumon.sources.ring_reader.ring_folder import (
    MAX_FOLDERS,
    FolderListing,
    RingOpener,
    candidates_in,
    folders_to_read,
    refusal_of,
)

_MAX_RINGS: Final = 16_384
_LIST_NS: Final = NS_PER_S
_READ_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSurvey:
    """What one reading of all rings found.

    Attributes:
        alive: A reading of each living run, without records.
        ended: How many rings are of ended runs.
        refused: How many must not be trusted or cannot be opened, by uid, the
            most first; under ``None``, those of further owners.
        refusal: Why the last one was refused, with its name.
        unread: How many were not read because there are too many; as ``refused``.
        is_listed: Whether all names in all folders were listed.
    """

    alive: tuple[RingReading, ...]
    ended: int
    refused: tuple[tuple[int | None, int], ...]
    refusal: str | None
    unread: tuple[tuple[int | None, int], ...]
    is_listed: bool


@dataclass(slots=True)
class _Results:
    opener: RingOpener
    clock: Clock
    alive: list[RingReading] = field(default_factory=list)
    ended: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    refusal: str | None = None

    def read(self, candidate: RingCandidate) -> None:
        try:
            reading = self._reading_of(candidate)
        except FileNotFoundError:
            return
        except (RingError, OSError) as error:
            age_ns = time.time_ns() - candidate.changed_ns
            if not isinstance(error, RingNotReadyError) or age_ns >= BEING_MADE_NS:
                self.refused[candidate.owner_uid] += 1
                self.refusal = refusal_of(candidate.place, error)
            return
        if reading is not None and reading.alive:
            self.alive.append(reading)
        elif reading is not None:
            self.ended += 1

    def _reading_of(self, candidate: RingCandidate) -> RingReading | None:
        now_ns = self.clock.monotonic_ns()
        ring = self.opener.open(candidate.place, now_ns)
        if ring is None:
            return None
        with contextlib.closing(ring):
            return ring.read(now_ns, max_records=0)


def survey_rings(directories: Iterable[str | Path], *, boot_id: str, clock: Clock) -> RingSurvey:
    """Read every ring in matching folders once: at most 16,384, for 3 s at most.

    A ring is closed as soon as its lock was queried, so rings of ended runs never take the place
    of a living one. Where time or number do not suffice, each owner has a fair share, and the
    newest rings of each are read first.
    """
    candidates, unlisted, is_listed = _listed(directories, clock)
    choice = choose_rings(candidates, _MAX_RINGS, unlisted)
    unread = Counter(choice.left_out)
    give_up_ns = clock.monotonic_ns() + _READ_NS
    with contextlib.closing(RingOpener(boot_id, set())) as opener:
        results = _Results(opener, clock)
        for candidate in _in_turns(choice.taken):
            if clock.monotonic_ns() < give_up_ns:
                results.read(candidate)
            else:
                unread[candidate.owner_uid] += 1
    return RingSurvey(
        alive=tuple(results.alive),
        ended=results.ended,
        refused=largest_owners(results.refused),
        refusal=results.refusal,
        unread=largest_owners(unread),
        is_listed=is_listed,
    )


def _listed(
    directories: Iterable[str | Path], clock: Clock
) -> tuple[list[RingCandidate], dict[int, int], bool]:
    """The rings that are remembered, how many more each owner has, and whether that is all."""
    folders = [*islice(folders_to_read(map(str, directories)), MAX_FOLDERS + 1)]
    listings = [FolderListing(folder, _MAX_RINGS) for folder in folders[:MAX_FOLDERS]]
    unfinished = listings
    give_up_ns = clock.monotonic_ns() + _LIST_NS
    # In turns, so that a full folder does not keep the others from being listed.
    while unfinished and clock.monotonic_ns() < give_up_ns:
        unfinished = [listing for listing in unfinished if _has_more(listing)]
    candidates, unlisted = candidates_in(listings)
    for listing in listings:
        listing.close()
    return candidates, unlisted, not unfinished and len(folders) <= MAX_FOLDERS


def _has_more(listing: FolderListing) -> bool:
    try:
        listing.update(())
    except OSError:  # no permission
        return False
    return not listing.is_complete


def _in_turns(candidates: Sequence[RingCandidate]) -> Iterator[RingCandidate]:
    """One of each owner after the other, the newest of each first."""
    by_owner: defaultdict[int, list[RingCandidate]] = defaultdict(list)
    for candidate in reversed(candidates):
        by_owner[candidate.owner_uid].append(candidate)
    for turn in zip_longest(*by_owner.values()):
        yield from (candidate for candidate in turn if candidate is not None)
