"""Forged rings of another user, and a valid ring next to them.

A ring with flipped bytes is refused by its check words. So most of these rings have forged facts,
totals and records with matching check words.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import xor
from pathlib import Path
from random import Random
from typing import Any, Final

from gpumon.core.ring_format.events import RingKind
from gpumon.core.ring_format.facts import encode_facts
from gpumon.core.ring_format.format import (
    FACTS_MAX_BYTES,
    FACTS_OFFSET,
    PAGE_BYTES,
    RECORD_BYTES,
    RECORD_COUNT,
    RING_BYTES,
    T_XOR,
    TOTALS_AT_WORDS,
    WORD_FACTS_BYTES,
    WORD_FACTS_CRC,
    WORD_FACTS_GENERATION,
    WORD_HEAD,
    WORD_TOTALS_GENERATION,
)
from tests.builders.ring import now, run_facts
from tests.fuzz.mutations import BYTES, HONEST, JUNK, mutated
from tests.ring_contents import record_words
from tests.training_processes import process

_SINCE_NS, _LAST_NS = 2, 6  # words of a copy of the totals
_FIRST_RECORDS: Final = 64
_WORD: Final = (1 << 64) - 1
_MOST_HELD: Final = 8
_MOST_RINGS: Final = 12
HONEST_PID: Final = 2_999_999
_OWN: Final = f"{HONEST_PID}-"
"""Prefix of the valid ring's name, which no other process may touch."""
_HOLDER: Final = """
import fcntl, os, sys
held = []
print("there", flush=True)
for line in sys.stdin:
    try:
        held.append(os.open(line.rstrip("\\n"), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
        fcntl.lockf(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        pass
    while len(held) > int(sys.argv[1]):
        os.close(held.pop(0))
    print("held", flush=True)
"""
"""A process that locks the newest of the given rings, so that their runs live."""

_TRAINING: Final = """
import json, select, sys
from dataclasses import replace
from pathlib import Path
from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from tests.builders.ring import phases_folder, run_facts, sparse_ring
facts = replace(run_facts(run=sys.argv[2], pid=int(sys.argv[3])), gpus=("1",))
writer = sparse_ring(phases_folder(Path(sys.argv[1])), facts)
wait, train = PHASE_NUMBER[TrainingPhase.INPUT_WAIT], PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
print("there", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    for _ in range(300):
        writer.enter(wait)
        writer.enter(train)
        writer.step(1, 32)
writer.enter(PHASE_NUMBER[TrainingPhase.CHECKPOINT])
writer.settle()
phase_ns = {phase.value: spent for phase, spent in zip(PHASES, writer._spent_ns) if spent}
written = {"steps": writer.steps, "samples": writer.samples, "phase_ns": phase_ns}
print(json.dumps(written), flush=True)
sys.stdin.read()
"""
"""The real writer at full speed, until it receives a line; then it prints its counters."""


def answer_of(child: subprocess.Popen[str], line: str) -> str:
    """Send a line, and return the answer."""
    assert child.stdin is not None
    assert child.stdout is not None
    print(line, file=child.stdin, flush=True)
    return child.stdout.readline()


@contextmanager
def valid_run(runtime: Path) -> Iterator[Callable[[], dict[str, Any]]]:
    """Start a run on GPU 1; yield a function that stops its writing and returns its counters."""
    with process(_TRAINING, runtime, str(runtime), HONEST, str(HONEST_PID)) as child:
        yield lambda: json.loads(answer_of(child, "enough"))


class OtherUser:
    """Another user's rings, which change all the time.

    Args:
        phases: Their folder.
        holder: A process that locks them.
    """

    def __init__(self, phases: Path, holder: subprocess.Popen[str]) -> None:
        self._phases = phases
        self._holder = holder
        self._number = 0
        self._ways: Sequence[Callable[[Random], None]] = (
            self._make, self._make, self._make, self._change_live, self._change_live,
            self._change_live, self._resize, self._rename, self._replace,
            self._make_garbage, self._remove,
        )  # fmt: skip

    def act(self, random: Random) -> str:
        """Do one random thing; return its name."""
        way = random.choice(self._ways)
        with contextlib.suppress(OSError):  # such as to write to what was made a folder
            way(random)
        names = os.listdir(self._phases)  # noqa: PTH208
        if len(names) > _MOST_RINGS:
            self._clear(self._phases / random.choice(names))
        return way.__name__

    def _rings(self) -> list[Path]:
        return sorted(path for path in self._phases.iterdir() if _OWN not in path.name)

    def _one(self, random: Random) -> Path:
        rings = self._rings()
        return random.choice(rings or [self._phases / "1-1.ring"])

    def _new_path(self, random: Random) -> Path:
        self._number += 1
        odd = ("x", "ring", ".ring", "1-1.ring.tmp", "é\x1b[31m.ring", f"{'9' * 200}.ring")
        plain = f"{self._number}-{now()}.ring"
        return self._phases / (plain if random.random() < 0.9 else random.choice(odd))

    def _make(self, random: Random) -> None:
        path = self._new_path(random)
        write_sparse(path, a_forged_ring(random), random)
        if random.random() < 0.7:
            answer_of(self._holder, str(path))

    def _make_garbage(self, random: Random) -> None:
        path = self._new_path(random)
        write_sparse(path, mutated(random, a_forged_ring(random), BYTES), random)

    def _change_live(self, random: Random) -> None:
        """Forge facts, totals or records of a ring that is being read."""
        path = self._one(random)
        if path.is_symlink() or not path.is_file():
            return
        with path.open("rb") as file:
            data = bytearray(file.read(PAGE_BYTES + _FIRST_RECORDS * RECORD_BYTES))
        if len(data) < PAGE_BYTES + RECORD_BYTES:
            return
        ring = RingBytes(data)
        for _ in range(random.choice((1, 1, 2, 4))):
            random.choice(FORGERIES)(random, ring)
        if random.random() < 0.2:
            data = bytearray(mutated(random, bytes(data), BYTES)[: len(data)])
        with path.open("r+b") as file:
            file.write(data)

    def _resize(self, random: Random) -> None:
        path = self._one(random)
        if path.is_file() and not path.is_symlink():
            sizes = (0, 1, 8, PAGE_BYTES, PAGE_BYTES + 32, RING_BYTES - 1, RING_BYTES, 1 << 40)
            os.truncate(path, random.choice((*sizes, RING_BYTES, RING_BYTES)))

    def _remove(self, random: Random) -> None:
        self._clear(self._one(random))

    def _rename(self, random: Random) -> None:
        one = self._one(random)
        one.rename(random.choice((self._new_path(random), self._one(random))))

    def _replace(self, random: Random) -> None:
        """Replace a ring by something else."""
        path, other = self._one(random), self._one(random)
        content = path.read_bytes() if path.is_file() and path.stat().st_size <= RING_BYTES else b""
        self._clear(path)
        ways: tuple[Callable[[], Any], ...] = (
            path.mkdir,
            lambda: os.mkfifo(path),
            lambda: path.symlink_to(other),
            lambda: path.symlink_to("/proc/self/mem"),
            lambda: path.hardlink_to(other),
            lambda: bind(path),
            lambda: path.write_bytes(content),
        )
        random.choice(ways)()

    @staticmethod
    def _clear(path: Path) -> None:
        if _OWN in path.name:
            return
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


@contextmanager
def other_user(runtime: Path) -> Iterator[OtherUser]:
    """A user with rings in the ``phases`` of this folder."""
    with process(_HOLDER, runtime, str(_MOST_HELD)) as holder:
        yield OtherUser(runtime / "phases", holder)


class RingBytes:
    """The beginning of a ring, with matching check words."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.words = memoryview(data)[: len(data) // 8 * 8].cast("Q")

    def facts(self) -> dict[str, Any]:
        """The facts in its first page; those of a simple run if they are invalid."""
        end = FACTS_OFFSET + min(self.words[WORD_FACTS_BYTES], FACTS_MAX_BYTES)
        try:
            facts = json.loads(self.data[FACTS_OFFSET:end])
        except (ValueError, RecursionError):
            facts = None
        return facts if isinstance(facts, dict) else simple_facts()

    def set_facts(self, raw: bytes) -> None:
        raw = raw[:FACTS_MAX_BYTES]
        self.data[FACTS_OFFSET : FACTS_OFFSET + len(raw)] = raw
        self.words[WORD_FACTS_BYTES], self.words[WORD_FACTS_CRC] = len(raw), zlib.crc32(raw)
        self.words[WORD_FACTS_GENERATION] = self.words[WORD_FACTS_GENERATION] + 1 & _WORD

    def set_total(self, copy: int, word: int, value: int) -> None:
        at = TOTALS_AT_WORDS[copy]
        self.words[at + word] = value & _WORD
        self.words[at + T_XOR] = reduce(xor, self.words[at : at + T_XOR])

    def set_record(self, slot: int, words: Sequence[int]) -> None:
        at = (PAGE_BYTES + slot * RECORD_BYTES) // 8
        for offset, word in enumerate(words):
            self.words[at + offset] = word & _WORD


def simple_facts() -> dict[str, Any]:
    """Facts of a simple run."""
    facts: dict[str, Any] = json.loads(encode_facts(run_facts()))
    return facts


def a_forged_ring(random: Random) -> bytes:
    """The beginning of a valid ring with forged parts."""
    ring = RingBytes(bytearray(PAGE_BYTES + _FIRST_RECORDS * RECORD_BYTES))
    ring.data[:8] = b"GPUMRING"
    ring.words[1], ring.words[2] = 1, RECORD_COUNT
    ring.set_facts(json.dumps({**simple_facts(), "run": random.choice(("lie", HONEST))}).encode())
    began_ns = now()
    for copy in (0, 1):
        for word in (_SINCE_NS, _LAST_NS):
            ring.set_total(copy, word, began_ns)
    for slot in range(random.choice((0, 1, 20, _FIRST_RECORDS))):
        kind = random.choice((*RingKind, RingKind.ENTER, RingKind.ENTER))
        value = random.choice((0, 1, 2, 1_000, 5))
        ring.set_record(
            slot, record_words(slot, kind, random.randrange(12), began_ns + slot, value)
        )
        ring.words[WORD_HEAD] = slot + 1
    for _ in range(random.choice((0, 0, 1, 1, 2, 6))):
        random.choice(FORGERIES)(random, ring)
    return bytes(ring.data)


def write_sparse(path: Path, beginning: bytes, random: Random) -> None:
    """Write a sparse file, mostly as long as a ring, with only this beginning."""
    # A link, or a pipe without a reader, may have that name by now.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o644)
    try:
        os.write(descriptor, beginning)
        length = RING_BYTES if random.random() < 0.95 else random.randrange(RING_BYTES)
        os.truncate(descriptor, length)
    finally:
        os.close(descriptor)


def a_number(random: Random) -> int:
    """A word that may be a count, a time, or neither."""
    near = now() + random.choice((0, -1, 1, 10**9, -(10**9), 10**12, -(10**12)))
    return random.choice(
        (0, 1, 2, 7, 255, 256, 1 << 16, 1 << 32, (1 << 32) + 1, 1 << 48, (1 << 53) - 1, 1 << 53,
         (1 << 53) * 512, 1 << 62, (1 << 63) - 1, 1 << 63, _WORD, near, near,
         random.getrandbits(64))
    )  # fmt: skip


def forge_facts(random: Random, ring: RingBytes) -> None:
    facts = ring.facts()
    names = (*simple_facts(), "more", "run", "gpus", "shares", "loader", "callback_ns")
    for _ in range(random.choice((1, 1, 3))):
        facts[random.choice(names)] = random.choice(JUNK)
    raw = json.dumps(facts, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    if random.random() < 0.1:
        raw = random.choice((mutated(random, raw, BYTES), b"[" * 3_000, b'{"run":' + b"9" * 2_900))
    ring.set_facts(raw)


def forge_totals(random: Random, ring: RingBytes) -> None:
    copy = random.randrange(2)
    for _ in range(random.choice((1, 1, 4))):
        few = random.choice((0, 1, 2, 5, 1_000))  # plausible values
        word, number = random.randrange(T_XOR), random.choice((a_number(random), few))
        ring.set_total(copy, word, number)
    if random.random() < 0.5:
        generation = ring.words[TOTALS_AT_WORDS[copy]]
        ring.words[WORD_TOTALS_GENERATION] = generation


def forge_records(random: Random, ring: RingBytes) -> None:
    most = (len(ring.data) - PAGE_BYTES) // RECORD_BYTES
    for _ in range(random.choice((1, 3, 40))):
        slot = random.randrange(most)
        lap = random.choice((0, 0, 0, 1, 7, (1 << 32) - 1)) * RECORD_COUNT
        head = (
            lap + slot << 16
            | random.choice((*RingKind, 0, 99, 255)) << 8
            | random.choice((*range(12), 12, 255))
        )
        at_ns, value = a_number(random), a_number(random)
        ring.set_record(slot, (head, at_ns, value, head ^ at_ns ^ value))


def forge_header(random: Random, ring: RingBytes) -> None:
    word = random.choice((0, 1, 2, WORD_FACTS_GENERATION, WORD_TOTALS_GENERATION, WORD_FACTS_BYTES))
    if random.random() < 0.7:
        heads = (0, 1, 16, 40, 64, 65, 200, RECORD_COUNT, RECORD_COUNT + 1, 1 << 47, (1 << 48) - 1)
        ring.words[WORD_HEAD] = random.choice((*heads, a_number(random)))
    else:
        ring.words[word] = a_number(random)


FORGERIES: Final = (forge_facts, forge_totals, forge_records, forge_header)


def bind(path: Path) -> None:
    """Make a socket; by a relative path, as absolute ones may be too long."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))
