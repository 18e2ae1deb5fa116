"""The ring's file as memory: allocated, locked, mapped, its first page written."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import zlib
from pathlib import Path
from typing import NamedTuple

from gpumon.core.ring.events import RunFacts
from gpumon.core.ring.facts import encode_facts
from gpumon.core.ring.format import (
    FACTS_OFFSET,
    MAGIC,
    RECORD_COUNT,
    RING_BYTES,
    VERSION,
    WORD_FACTS_BYTES,
    WORD_FACTS_CRC,
    WORD_FACTS_GENERATION,
    WORD_RECORD_COUNT,
    WORD_VERSION,
)
from trainer_hooks.ring.ring_folder import RingFolder


class RingMemory(NamedTuple):
    """A ring that is ready to be written.

    Attributes:
        path: Where it is.
        data: Its bytes.
        words: The same as 64-bit words: a store of one is never torn.
        descriptor: Its lock lives as long as this is open.
        folder: A lock on its folder, which lives as long: systemd-tmpfiles, which
            removes what nobody has touched for days, leaves a locked folder
            alone. ``None``: there is none.
    """

    path: Path
    data: mmap.mmap
    words: memoryview
    descriptor: int
    folder: int | None = None

    def state_facts(self, facts: RunFacts, *, wall_ns: int) -> None:
        """Write the facts into page 0; read half-way, they do not fit their check sum."""
        raw = encode_facts(facts, wall_ns=wall_ns)
        self.words[WORD_FACTS_CRC] = 0
        self.data[FACTS_OFFSET : FACTS_OFFSET + len(raw)] = raw
        self.words[WORD_FACTS_BYTES] = len(raw)
        self.words[WORD_FACTS_CRC] = zlib.crc32(raw)
        self.words[WORD_FACTS_GENERATION] += 1

    def let_go(self) -> None:
        """Free its locks, as the end of the process does. It stays mapped."""
        for descriptor in (self.descriptor, self.folder):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def make_ring(folder: RingFolder, facts: RunFacts, *, wall_ns: int) -> RingMemory:
    """Make this process' ring; the magic comes last, so nobody reads half of it.

    Every byte is allocated before it is mapped: in a sparse file, a full disk
    would kill the training with SIGBUS.

    Raises:
        OSError: No room, no right, or a file of that name is there.
        RingError: The facts do not fit.
    """
    path = folder.path / f"{facts.pid}-{facts.started_ns}.ring"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, folder.ring_mode)
    try:
        os.fchmod(descriptor, folder.ring_mode)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        os.posix_fallocate(descriptor, 0, RING_BYTES)
        data = mmap.mmap(descriptor, RING_BYTES)
        memory = RingMemory(path, data, memoryview(data).cast("Q"), descriptor)
        memory.words[WORD_VERSION] = VERSION
        memory.words[WORD_RECORD_COUNT] = RECORD_COUNT
        memory.state_facts(facts, wall_ns=wall_ns)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return memory._replace(folder=_locked(folder.path))


def _locked(folder: Path) -> int | None:
    """Share a lock on the folder with the other trainings; without one it is no worse than before.

    No daemon locks this folder, and nobody waits for the lock.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def publish(memory: RingMemory) -> None:
    """Let readers in."""
    memory.words[0] = int.from_bytes(MAGIC, "little" if _IS_LITTLE else "big")


_IS_LITTLE = memoryview(b"\1\0\0\0\0\0\0\0").cast("Q")[0] == 1
