"""Rings as a training process writes them, and as an attacker might."""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
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
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.processes import ending
from trainer_hooks.ring.mapped_file import RingFolder, RingMemory, make_ring
from trainer_hooks.ring.ring_writer import RingWriter

BOOT_ID = "b007-1d"
ANOTHER_OWNER = 3_999_999
"""A pid that no test process has: the reader skips rings of its own process."""

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
    pid: int = ANOTHER_OWNER,
    boot_id: str = BOOT_ID,
    started_ns: int | None = None,
) -> RunFacts:
    """Facts of a run that started now."""
    started_ns = time.monotonic_ns() if started_ns is None else started_ns
    return RunFacts(run=run, job="job", pid=pid, boot_id=boot_id, started_ns=started_ns)


def phases_folder(runtime: Path) -> Path:
    """The folder of rings, made if necessary."""
    phases = runtime / "phases"
    phases.mkdir(exist_ok=True)
    return phases


class WrittenRing:
    """A ring that this test writes, and whose lock is free."""

    def __init__(self, runtime: Path, facts: RunFacts | None = None) -> None:
        self.facts = facts or run_facts()
        memory = make_ring(RingFolder(phases_folder(runtime), 0o600), self.facts, wall_ns=0)
        fcntl.lockf(memory.descriptor, fcntl.LOCK_UN, 1)
        self.memory = memory
        self.path = memory.path
        self.writer = RingWriter(memory, self.facts)


def sparse_ring(phases: Path, facts: RunFacts) -> RingWriter:
    """A ring whose lock this process holds, as a sparse file."""
    path, descriptor = _file_of(phases, facts)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    os.ftruncate(descriptor, RING_BYTES)
    return _begun(path, mmap.mmap(descriptor, RING_BYTES), descriptor, facts)


def dead_rings(phases: Path, runs: Iterable[RunFacts]) -> None:
    """Rings of processes that ended at once; not mapped, which would take milliseconds each."""
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
    memory.write_facts(facts, wall_ns=0)
    return RingWriter(memory, facts)


class LockHolder:
    """Another process that holds a ring's lock."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def free_lock(self) -> None:
        """Release the lock and live on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"free\n"


@contextmanager
def held_by_a_process(path: Path) -> Iterator[int]:
    with lock_holder(path) as holder:
        yield holder.pid


@contextmanager
def lock_holder(path: Path) -> Iterator[LockHolder]:
    """Let another process hold the ring's lock until it is requested to free it."""
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
    """The only ring; no other was refused."""
    assert reading.message is None
    assert len(reading.rings) == 1
    return reading.rings[0]


def kinds(events: Iterable[RingEvent]) -> list[str]:
    return [event.kind.name for event in events]


NAME = "1-1.ring"
INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]


def of_version(phases: Path, version: int, *, name: str, length: int = RING_BYTES) -> None:
    """A ring of another version, whose layout after the first bytes is unknown."""
    words = array("Q", (int.from_bytes(b"GPUMRING", sys.byteorder), version))
    (phases / name).write_bytes(words.tobytes().ljust(length, b"\1"))


def a_huge_sparse_file(phases: Path) -> None:
    with (phases / NAME).open("wb") as file:
        file.truncate(1 << 40)


def a_link(phases: Path) -> None:
    target = phases.parent / "elsewhere"
    target.write_bytes(bytes(RING_BYTES))
    (phases / NAME).symlink_to(target)


def more_time_than_has_passed(phases: Path) -> None:
    writer = WrittenRing(phases.parent).writer
    writer._spent_ns[INPUT_WAIT] = 1 << 50
    writer.epoch(0)


def a_phase_from_before_its_run(phases: Path) -> None:
    writer = WrittenRing(phases.parent).writer
    writer.since_ns = 0
    for _ in range(100):
        writer.step()
    writer.settle()


def torn_totals(phases: Path) -> None:
    words = WrittenRing(phases.parent).memory.words
    words[16] ^= 1 << 40
    words[48] ^= 1 << 40


def facts_that_are_no_json(phases: Path) -> None:
    memory = WrittenRing(phases.parent).memory
    memory.data[1024:1025] = b"!"


HOSTILE_RINGS: dict[str, Callable[[Path], object]] = {
    "garbage": lambda phases: (phases / NAME).write_bytes(os.urandom(RING_BYTES)),
    "an empty header": lambda phases: (phases / NAME).write_bytes(bytes(RING_BYTES)),
    "a short file": lambda phases: (phases / NAME).write_bytes(b"GPUMRING"),
    "a huge sparse file": a_huge_sparse_file,
    "a link": a_link,
    "a link to nowhere": lambda phases: (phases / NAME).symlink_to("/nonexistent/x"),
    "a pipe": lambda phases: os.mkfifo(phases / NAME),
    "a folder": lambda phases: (phases / NAME).mkdir(),
    "another version": lambda phases: of_version(phases, 2, name=NAME),
    "a shorter ring of another version": lambda phases: of_version(
        phases, 3, name=NAME, length=1 << 16
    ),
    "another boot": lambda phases: WrittenRing(phases.parent, run_facts(boot_id="other")),
    "a start in the future": lambda phases: WrittenRing(
        phases.parent, run_facts(started_ns=now() + 3600 * NS_PER_S)
    ),
    "more time than has passed": more_time_than_has_passed,
    "a phase from before its run": a_phase_from_before_its_run,
    "a last record from before its run": lambda phases: WrittenRing(phases.parent).writer._publish(
        1
    ),
    "a last record in the future": lambda phases: WrittenRing(phases.parent).writer._publish(
        now() + 3600 * NS_PER_S
    ),
    "torn totals": torn_totals,
    "facts that are no JSON": facts_that_are_no_json,
}


class WatchedRing(WrittenRing):
    """A ring that this test writes, and a reader of all rings."""

    def __init__(self, runtime: Path, facts: RunFacts | None = None) -> None:
        super().__init__(runtime, facts)
        self.reader = PhaseRingReader([runtime], boot_id=BOOT_ID)

    def held(self) -> AbstractContextManager[int]:
        """Another process holds its lock meanwhile, so that it is alive."""
        return held_by_a_process(self.path)

    def read(self) -> RingReading:
        return only(self.read_all())

    def read_all(self, later_ns: int = 0) -> RingsReading:
        return self.reader.read(now() + later_ns)
