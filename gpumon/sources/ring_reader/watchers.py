"""Whether a user looks: readers of the state file touch a heartbeat beside the rings."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.sources.ring_reader.ring_folder import MAX_HEARTBEATS, Place, Unlink, is_heartbeat

WATCHED_NS: Final = 3 * NS_PER_S
"""ours: a reader that shows a row each second may be late by two of them."""


def is_watched(
    heartbeats: Iterable[Place], phases_of: Callable[[str], int], unlink: Unlink
) -> bool:
    """Whether a user has touched a heartbeat within ``WATCHED_NS`` of now, by the wall clock.

    Any user may make one, so at most ``MAX_HEARTBEATS`` are looked at. Nothing is opened or
    followed, and contents do not count. Those that were not touched for ``KEEP_ENDED_NS`` are
    removed, as rings of ended runs are.

    Args:
        heartbeats: As ``FolderListing`` found them; each is checked again.
        phases_of: Returns a descriptor of a runtime folder's ``phases``, or raises ``OSError``.
        unlink: Removes a file if this user may.
    """
    found, now_ns = False, time.time_ns()
    for place in islice(heartbeats, MAX_HEARTBEATS):
        with contextlib.suppress(OSError):  # it is gone
            folder = phases_of(place[0])
            status = os.stat(place[1], dir_fd=folder, follow_symlinks=False)
            if not is_heartbeat(place[1], status):
                continue
            away_ns = abs(now_ns - status.st_mtime_ns)  # the clock may have been set back
            found = found or away_ns <= WATCHED_NS
            if away_ns >= KEEP_ENDED_NS:
                unlink(place, status.st_uid, folder)
    return found
