"""Create the ring's file in the first folder that can be trusted, and map it into memory."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.ring_format.events import RunFacts
from gpumon.core.ring_format.facts import encode_facts
from gpumon.core.ring_format.format import (
    FACTS_OFFSET,
    MAGIC,
    RECORD_COUNT,
    RING_BYTES,
    VERSION,
    WORD_CLOSED,
    WORD_FACTS_BYTES,
    WORD_FACTS_CRC,
    WORD_FACTS_GENERATION,
    WORD_RECORD_COUNT,
    WORD_VERSION,
)
from gpumon.core.ring_format.runtime_paths import (
    FOLDER_FLAGS,
    PHASES,
    PRIVATE_MODE,
    SYSTEM_FOLDER,
    distrust,
    explicit_folder,
    is_shared,
    ring_name,
    writer_folders,
)
from gpumon.errors import RingError

_SHARED_RING: Final = 0o644
_PRIVATE_RING: Final = 0o600


class RingFolder(NamedTuple):
    """A ``phases`` folder and the mode of a ring in it."""

    path: Path
    ring_mode: int


def find_ring_folder(environ: Mapping[str, str], uid: int) -> RingFolder:
    """Find or create the ``phases`` folder for this user's rings.

    Raises:
        RingError: None can be created and trusted; says why.
    """
    explicit = explicit_folder(environ) is not None
    folders = writer_folders(
        environ, uid, system_folder_has_phases=(SYSTEM_FOLDER / PHASES).is_dir()
    )
    troubles = []
    for folder in folders:
        try:
            return _checked(folder, uid, explicit=explicit)
        except RingError as error:  # noqa: PERF203  (the next folder may do)
            troubles.append(str(error))
        except FileExistsError as error:
            troubles.append(f"{error.filename} is not a folder")
        except OSError as error:
            troubles.append(f"{folder}: {error.strerror or error}")
    raise RingError("; ".join(troubles))


def _checked(folder: Path, uid: int, *, explicit: bool) -> RingFolder:
    phases = folder / PHASES
    if folder != SYSTEM_FOLDER:
        folder.mkdir(mode=PRIVATE_MODE, parents=explicit, exist_ok=True)
    _insist_on_trust(folder, uid, explicit=explicit)
    phases.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    status = _insist_on_trust(phases, uid, explicit=explicit)
    if not os.access(phases, os.W_OK | os.X_OK):
        raise RingError(f"{phases} cannot be written")
    return RingFolder(phases, _SHARED_RING if is_shared(status) else _PRIVATE_RING)


def _insist_on_trust(folder: Path, uid: int, *, explicit: bool) -> os.stat_result:
    status = folder.lstat()
    trouble = distrust(folder, status, uid=uid, explicit=explicit)
    if trouble is not None:
        raise RingError(trouble)
    return status


class RingMemory(NamedTuple):
    """A mapped ring, ready to be written.

    Attributes:
        path: Of the file.
        data: Its bytes.
        words: The same as 64-bit words: storing one is never torn.
        descriptor: Holds the ring's lock while open.
        folder: Descriptor of a lock on the folder, held as long: systemd-tmpfiles, which removes
            files unused for days, skips locked folders. ``None``: no lock.
    """

    path: Path
    data: mmap.mmap
    words: memoryview
    descriptor: int
    folder: int | None = None

    def write_facts(self, facts: RunFacts, *, wall_ns: int) -> None:
        """Write the facts into page 0; a half-written copy fails its checksum."""
        raw = encode_facts(facts, wall_ns=wall_ns)
        self.words[WORD_FACTS_CRC] = 0
        self.data[FACTS_OFFSET : FACTS_OFFSET + len(raw)] = raw
        self.words[WORD_FACTS_BYTES] = len(raw)
        self.words[WORD_FACTS_CRC] = zlib.crc32(raw)
        self.words[WORD_FACTS_GENERATION] += 1

    def let_go(self) -> None:
        """Mark the ring as closed and free its locks, as the end of the process does.

        The mapping stays.
        """
        self.words[WORD_CLOSED] = 1
        for descriptor in (self.descriptor, self.folder):
            if descriptor is not None:
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def make_ring(folder: RingFolder, facts: RunFacts, *, wall_ns: int) -> RingMemory:
    """Create this process's ring; the magic is written last, so readers ignore an unfinished one.

    Every byte is allocated before mapping: in a sparse file, a full disk would kill the run
    with SIGBUS.

    Raises:
        OSError: No space, no permission, or the file exists.
        RingError: The facts do not fit.
    """
    path = folder.path / ring_name(facts.pid, facts.started_ns)
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
        memory.write_facts(facts, wall_ns=wall_ns)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return memory._replace(folder=_locked(folder.path))


def _locked(folder: Path) -> int | None:
    """Take a shared lock on the folder; without one the ring only lives less long.

    No daemon locks this folder, and no process waits for the lock.
    """
    try:
        descriptor = os.open(folder, FOLDER_FLAGS)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def publish(memory: RingMemory) -> None:
    """Write the magic: from now on readers accept the ring."""
    memory.words[0] = int.from_bytes(MAGIC, sys.byteorder)
