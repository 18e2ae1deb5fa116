"""Rings of other processes: dead ones to remove, and that of a parent."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring_format.facts import facts_of_page
from gpumon.core.ring_format.format import (
    HEADER_BYTES,
    LOCK_QUESTION,
    PAGE_BYTES,
    RING_BYTES,
    is_blank,
    newest_totals,
    parse_header,
    read_lock_answer,
)
from gpumon.core.ring_format.runtime_paths import FILE_FLAGS, FOLDER_FLAGS, RING_SUFFIX
from gpumon.errors import RingError
from trainer_hooks.ring.mapped_file import find_ring_folder

MOST_LOOKED_AT: Final = 64
_MOST_LISTED: Final = 4_096
_LISTED_AT_ONCE: Final = 512
_MOST_TIME_S: Final = 0.05

KEPT_S: Final = ((256, 60.0), (64, 15 * 60.0), (0, 24 * 3600.0))
"""In a folder of more rings than this, dead ones stay this long: a daemon that starts late
can still explain a crashed run, and many short runs do not fill the memory."""
KEPT_FROM_ANOTHER_BOOT_S: Final = 7 * 24 * 3600.0
"""It may be another machine's, in a shared folder, where its lock is not visible."""


class _Now(NamedTuple):
    """This boot and its two clocks."""

    boot_id: str
    monotonic_ns: int
    wall_ns: int


def sweep_dead_rings(phases: Path, *, boot_id: str, now_ns: int, wall_ns: int) -> int:
    """Remove some of this user's dead rings. Never raises.

    Must be called before this process has a ring: closing one of its own would free its lock. At
    most ``MOST_LOOKED_AT`` are opened, in rotation; rings that are locked, young, another user's
    or not understood stay.

    Args:
        phases: The folder of the rings.
        boot_id: Of this kernel.
        now_ns: CLOCK_MONOTONIC.
        wall_ns: Wall clock, nanoseconds since the epoch.

    Returns:
        How many were removed.
    """
    removed, now = 0, _Now(boot_id, now_ns, wall_ns)
    with contextlib.suppress(Exception):
        folder = os.open(phases, FOLDER_FLAGS)
        try:
            until_s = time.monotonic() + _MOST_TIME_S
            names = _ring_names(folder, until_s - _MOST_TIME_S / 2)
            kept_s = next(kept_s for most, kept_s in KEPT_S if len(names) > most)
            for name in _some_of(names, now_ns):
                if time.monotonic() > until_s:
                    break
                with contextlib.suppress(OSError, RingError):
                    if _has_been_dead_for(kept_s, name, folder, now):
                        os.unlink(name, dir_fd=folder)
                        removed += 1
        finally:
            os.close(folder)
    return removed


def _ring_names(folder: int, until_s: float) -> list[str]:
    """List some of the rings, however many other files were put there."""
    names: list[str] = []
    with os.scandir(folder) as entries:
        while len(names) < _MOST_LISTED and time.monotonic() < until_s:
            some = list(islice(entries, _LISTED_AT_ONCE))
            if not some:
                break
            names += [entry.name for entry in some if entry.name.endswith(RING_SUFFIX)]
    return names


def _some_of(names: Sequence[str], now_ns: int) -> list[str]:
    """Start at a varying index, so that rings that must stay never hide the others for good."""
    start = now_ns // 1_000 % max(1, len(names))
    return [*names[start:], *names[:start]][:MOST_LOOKED_AT]


def _has_been_dead_for(kept_s: float, name: str, folder: int, now: _Now) -> bool:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return False
    untouched_s = (now.wall_ns - status.st_mtime_ns) / NS_PER_S
    if status.st_size not in (0, RING_BYTES) or untouched_s < kept_s:
        return False
    ring = os.open(name, FILE_FLAGS, dir_fd=folder)
    try:
        if read_lock_answer(fcntl.fcntl(ring, fcntl.F_GETLK, LOCK_QUESTION)).held:
            return False
        page = os.pread(ring, PAGE_BYTES, 0)
    finally:
        os.close(ring)
    if not page or is_blank(page):
        return True  # its process ended while creating it
    written_ns = _last_written_ns(page, now.boot_id)
    if written_ns is None:
        return untouched_s >= KEPT_FROM_ANOTHER_BOOT_S
    # Writing through the mapping does not change the modification time.
    return (now.monotonic_ns - written_ns) / NS_PER_S >= kept_s


def _last_written_ns(page: bytes, boot_id: str) -> int | None:
    """Return CLOCK_MONOTONIC of the last write; ``None`` where that clock is another boot's.

    Raises:
        RingError: The ring is of another version.
    """
    header = parse_header(page)
    facts = facts_of_page(page, header)
    if facts is None or facts.boot_id != boot_id:
        return None  # killed while writing the facts, or of another boot
    totals = newest_totals(page, header.totals_generation)
    return max(facts.started_ns, 0 if totals is None else totals.last_ns)


_MOST_ANCESTORS: Final = 16


def is_loader_worker() -> bool:
    """Whether ``multiprocessing`` started this process below one that writes a ring. Never raises.

    Such a worker is not a run of its own. A rank that ``mp.spawn`` starts from a program without
    a ring is one.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return False
    with contextlib.suppress(OSError, RingError, ValueError):
        phases = find_ring_folder(os.environ, os.geteuid()).path
        ancestors = set(_ancestors())
        return any(
            _pid_of(ring) in ancestors and not _is_closed(ring)
            for ring in phases.glob(f"*{RING_SUFFIX}")
        )
    return False


def _pid_of(ring: Path) -> int | None:
    pid = ring.name.partition("-")[0]
    return int(pid) if pid.isdecimal() else None


def _ancestors() -> Iterator[int]:
    """Yield the pids of the parent, its parent and so on: a forkserver may stand in between."""
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            return
        yield pid
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        pid = int(stat.rpartition(b") ")[2].split()[1])


def _is_closed(ring: Path) -> bool:
    descriptor = os.open(ring, FILE_FLAGS)
    try:
        return parse_header(os.pread(descriptor, HEADER_BYTES, 0)).is_closed
    finally:
        os.close(descriptor)
