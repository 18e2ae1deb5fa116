"""Whether this process is a worker of one that has a ring: then it is no run of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.ring_format.format import HEADER_BYTES, parse_header
from gpumon.core.ring_format.runtime_paths import FILE_FLAGS, RING_SUFFIX
from gpumon.errors import RingError
from trainer_hooks.ring.ring_file import find_ring_folder

_MOST_ANCESTORS: Final = 16


def is_loader_worker() -> bool:
    """Whether ``multiprocessing`` started this process, below one that writes a ring.

    A rank that ``mp.spawn`` starts from a program that tags nothing is none. Never raises.
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
    """Pids of its parent, of that one's parent, and so on: a forkserver stands in between."""
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
