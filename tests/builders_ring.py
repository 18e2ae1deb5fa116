"""Phase rings for tests: real ones, made by the real writer, in a folder of the test's own."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpumon.core.ring_format.events import RingEvent, RingReading, RingsReading, RunFacts
from gpumon.core.ring_format.format import (
    PAGE_BYTES,
    RECORD_COUNT,
    RING_BYTES,
    VERSION,
    WORD_RECORD_COUNT,
    WORD_VERSION,
)
from gpumon.core.ring_format.runtime_paths import ring_name
from tests.processes import ending
from trainer_hooks.ring.ring_file import RingFolder, RingMemory, make_ring
from trainer_hooks.ring.ring_writer import RingWriter

BOOT_ID = "b007-1d"
SOMEBODY_ELSE = 3_999_999
"""A pid that no test process has: the reader passes rings of its own process over."""

_HOLD = """
import fcntl, os, sys
held = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
print("held", flush=True)
sys.stdin.readline()
os.close(held)
print("free", flush=True)
sys.stdin.read()
"""


def run_facts(
    *,
    run: str = "resnet",
    pid: int = SOMEBODY_ELSE,
    boot_id: str = BOOT_ID,
    started_ns: int | None = None,
) -> RunFacts:
    """Facts of a run that started now."""
    started_ns = time.monotonic_ns() if started_ns is None else started_ns
    return RunFacts(run=run, job="job", pid=pid, boot_id=boot_id, started_ns=started_ns)


def phases_folder(runtime: Path) -> Path:
    """The folder in which rings lie, made if need be."""
    phases = runtime / "phases"
    phases.mkdir(exist_ok=True)
    return phases


class WrittenRing:
    """A ring whose writer is this test, and whose lock nobody holds."""

    def __init__(self, runtime: Path, facts: RunFacts | None = None) -> None:
        self.facts = facts or run_facts()
        memory = make_ring(RingFolder(phases_folder(runtime), 0o600), self.facts, wall_ns=0)
        fcntl.lockf(memory.descriptor, fcntl.LOCK_UN, 1)
        self.memory = memory
        self.path = memory.path
        self.writer = RingWriter(memory, self.facts)


def sparse_ring(phases: Path, facts: RunFacts) -> RingWriter:
    """A ring as its writer makes it, whose lock this process holds, but without its 2 MB."""
    path, descriptor = _file_of(phases, facts)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    os.ftruncate(descriptor, RING_BYTES)
    return _begun(path, mmap.mmap(descriptor, RING_BYTES), descriptor, facts)


def dead_rings(phases: Path, runs: Iterable[RunFacts]) -> None:
    """Rings as processes leave them that end at once; not mapped each, which takes milliseconds."""
    for facts in runs:
        path, descriptor = _file_of(phases, facts)
        writer = _begun(path, mmap.mmap(-1, RING_BYTES), descriptor, facts)
        os.write(descriptor, writer._memory.data[: 2 * PAGE_BYTES])
        os.ftruncate(descriptor, RING_BYTES)
        os.close(descriptor)


def _file_of(phases: Path, facts: RunFacts) -> tuple[Path, int]:
    path = phases / ring_name(facts.pid, facts.started_ns)
    return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


def _begun(path: Path, data: mmap.mmap, descriptor: int, facts: RunFacts) -> RingWriter:
    memory = RingMemory(path, data, memoryview(data).cast("Q"), descriptor)
    memory.words[WORD_VERSION], memory.words[WORD_RECORD_COUNT] = VERSION, RECORD_COUNT
    memory.state_facts(facts, wall_ns=0)
    return RingWriter(memory, facts)


class LockHolder:
    """Another process that holds a ring's lock, and lives until its block ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def free_lock(self) -> None:
        """Lose the lock and live on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"free\n"


@contextmanager
def held_by_a_process(path: Path) -> Iterator[int]:
    """Let another process hold the ring's lock; yields its pid."""
    with lock_holder(path) as holder:
        yield holder.pid


@contextmanager
def lock_holder(path: Path) -> Iterator[LockHolder]:
    """Let another process hold the ring's lock until it is asked to free it."""
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with ending(holder):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield LockHolder(holder)


def now() -> int:
    """CLOCK_MONOTONIC, which stamps the records of a real writer."""
    return time.monotonic_ns()


def only(reading: RingsReading) -> RingReading:
    """The one ring that was read, without a complaint about any other."""
    assert reading.message is None
    assert len(reading.rings) == 1
    return reading.rings[0]


def kinds(events: Iterable[RingEvent]) -> list[str]:
    """Names of the kinds of these records."""
    return [event.kind.name for event in events]
