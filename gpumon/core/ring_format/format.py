"""The bytes of a phase ring, version 1: one codec for the writer and the reader.

``docs/decisions/14-phase-ring.md`` draws the layout. Everything is 64-bit words in
the machine's own byte order: both ends always run on one machine. The writer
locks the first byte while it lives.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from array import array
from functools import cache, reduce
from operator import and_, not_, xor
from typing import Final, NamedTuple

from gpumon.core.phase import PHASES, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind, RingRecords
from gpumon.errors import RingError

MAGIC: Final = b"GPUMRING"
VERSION: Final = 1
PAGE_BYTES: Final = 4096
RECORD_COUNT: Final = 65_536
RECORD_WORDS: Final = 4
RECORD_BYTES: Final = 8 * RECORD_WORDS
RING_BYTES: Final = PAGE_BYTES + RECORD_COUNT * RECORD_BYTES

HEADER_BYTES: Final = 1024
"""Read in each tick: the header words and both copies of the totals."""
FACTS_OFFSET: Final = HEADER_BYTES
FACTS_MAX_BYTES: Final = PAGE_BYTES - FACTS_OFFSET

WORD_VERSION: Final = 1
WORD_RECORD_COUNT: Final = 2
WORD_FACTS_GENERATION: Final = 3
WORD_HEAD: Final = 4
WORD_TOTALS_GENERATION: Final = 5
WORD_FACTS_BYTES: Final = 6
WORD_FACTS_CRC: Final = 7
WORD_CLOSED: Final = 8
CHANGING_BYTES: Final = 8 * (WORD_CLOSED + 1)
"""The first words of a ring: at least one of them changes with anything else in it."""
TOTALS_AT_WORDS: Final = (16, 48)

# Words of one copy of the totals: those of ``RingTotals`` in their order, and their XOR.
T_PHASES: Final = 8
T_XOR: Final = 24
TOTALS_WORDS: Final = 25

MODE_SHIFT: Final = 8
KIND_SHIFT: Final = 8
SEQUENCE_SHIFT: Final = 16
WORD_MASK: Final = (1 << 64) - 1
SEQUENCE_MASK: Final = (1 << 48) - 1

_SEQUENCE_BITS: Final = SEQUENCE_MASK << SEQUENCE_SHIFT
_KIND_BYTE, _PHASE_BYTE = (6, 7) if sys.byteorder == "big" else (1, 0)
_KNOWN_KINDS: Final = bytes(int(byte in {*RingKind}) for byte in range(256))
_KNOWN_PHASES: Final = bytes(int(byte < len(PHASES)) for byte in range(256))
COUNT_LIMIT: Final = 1 << 53
"""More steps or samples are impossible, and no exact number in JSON."""
_MAX_EPOCH: Final = 1 << 32


class RingHeader(NamedTuple):
    """The words of page 0 that change while a ring is written.

    Attributes:
        facts_generation: Grows by one whenever the facts are rewritten.
        head: Records written so far; the next one's sequence number.
        totals_generation: Generation of the newest complete copy of the totals.
        is_closed: Whether the process marked the ring as closed before it released the lock.
    """

    facts_generation: int
    head: int
    totals_generation: int
    facts_bytes: int
    facts_crc: int
    is_closed: bool = False


class RingTotals(NamedTuple):
    """Sums that a ring keeps, however often its records are overwritten.

    Attributes:
        generation: Grows by one with each change.
        since_ns: Start of the part of ``present`` that is not in ``phase_ns``.
        epoch: Epoch under way, from 0; ``None`` before the first.
        last_ns: Time of the newest change.
        phase_ns: Nanoseconds in each phase, without the one under way, in ring order.
    """

    generation: int
    present: TrainingPhase
    mode: int
    since_ns: int
    steps: int
    samples: int
    epoch: int | None
    last_ns: int
    phase_ns: tuple[int, ...]


def words_of(raw: bytes) -> array[int]:
    """``raw`` as 64-bit words, without a tail that is shorter than a word."""
    words = array("Q")
    words.frombytes(raw[: len(raw) - len(raw) % 8])
    return words


def is_blank(raw: bytes) -> bool:
    """Whether a ring is still being made: its magic is written last."""
    return not any(raw[: len(MAGIC)])


def parse_header(raw: bytes) -> RingHeader:
    """Read the changing words from the first ``HEADER_BYTES`` or more of page 0.

    Raises:
        RingError: Not a ring, or of another version, or inconsistent.
    """
    if len(raw) < HEADER_BYTES or raw[: len(MAGIC)] != MAGIC:
        raise RingError("not a phase ring")
    words = words_of(raw[:HEADER_BYTES])
    if words[WORD_VERSION] != VERSION:
        raise RingError(_of_another_version(words[WORD_VERSION]))
    if words[WORD_RECORD_COUNT] != RECORD_COUNT:
        raise RingError(f"phase ring of {words[WORD_RECORD_COUNT]} records, not {RECORD_COUNT}")
    if words[WORD_FACTS_BYTES] > FACTS_MAX_BYTES:
        raise RingError("phase ring with more facts than fit its first page")
    if words[WORD_HEAD] > SEQUENCE_MASK:
        raise RingError("phase ring with an impossible number of records")
    return RingHeader(
        words[WORD_FACTS_GENERATION],
        words[WORD_HEAD],
        words[WORD_TOTALS_GENERATION],
        words[WORD_FACTS_BYTES],
        words[WORD_FACTS_CRC],
        words[WORD_CLOSED] != 0,
    )


def version_trouble(raw: bytes) -> str | None:
    """The error text for a ring of another version, from its first 16 bytes; else ``None``."""
    if raw[: len(MAGIC)] != MAGIC or len(raw) < 8 * (WORD_VERSION + 1):
        return None
    version = words_of(raw)[WORD_VERSION]
    return None if version == VERSION else _of_another_version(version)


def _of_another_version(version: int) -> str:
    older = "this gpumon" if version > VERSION else "the gpumon of the training run"
    return f"a phase ring of version {version}, but this reads version {VERSION}: update {older}"


def newest_totals(raw: bytes, published: int) -> RingTotals | None:
    """The newest valid copy of the totals; ``None`` if neither is valid.

    Args:
        raw: The first ``HEADER_BYTES`` of the file, or more.
        published: ``totals_generation`` of the header. A copy beyond it was
            being written while it was read, whatever its check word is.
    """
    words = words_of(raw[:HEADER_BYTES])
    copies = [_totals(words[at : at + TOTALS_WORDS]) for at in TOTALS_AT_WORDS]
    valid = [copy for copy in copies if copy is not None and copy.generation <= published]
    return max(valid, key=lambda copy: copy.generation, default=None)


def _totals(words: array[int]) -> RingTotals | None:
    if len(words) < TOTALS_WORDS or reduce(xor, words[:T_XOR]) != words[T_XOR]:
        return None
    generation, present, since_ns, steps, samples, epoch, last_ns, _, *phase_ns = words[:T_XOR]
    mode, phase = present >> MODE_SHIFT, present & 0xFF
    is_known = phase < len(PHASES) and mode < len(TrainingMode) and epoch <= _MAX_EPOCH
    if not is_known or max(steps, samples, since_ns, last_ns) > COUNT_LIMIT * 512:
        return None
    return RingTotals(
        generation=generation,
        present=PHASES[phase],
        mode=mode,
        since_ns=since_ns,
        steps=min(steps, COUNT_LIMIT),
        samples=min(samples, COUNT_LIMIT),
        epoch=epoch - 1 if epoch else None,  # 0 in the ring: none yet
        last_ns=last_ns,
        phase_ns=tuple(phase_ns[: len(PHASES)]),
    )


def decode_records(raw: bytes, first_sequence: int) -> tuple[RingRecords, bytes]:
    """Decode consecutive records.

    Each column is handled as one large integer, so that one ``^`` checks all records.

    Args:
        raw: Records as they lie in the file; an incomplete last one is left out.
        first_sequence: The sequence number that the first one must have; it wraps at 48 bits.

    Returns:
        The records, and a byte for each: 0 if its sequence, check word, kind or phase is wrong,
        because it was overwritten, is being written, or was forged.
    """
    count = len(raw) // RECORD_BYTES
    raw = raw[: count * RECORD_BYTES]
    words = words_of(raw)
    columns = [words[at::RECORD_WORDS] for at in range(RECORD_WORDS)]
    heads, stamps, values, checks = map(_number, columns)
    first = (first_sequence & SEQUENCE_MASK) * _number(array("Q", [1]) * count)
    # A sequence that wraps at 48 bits carries into the next word's lowest bits, which are masked.
    expected = first + _number(_sequence_numbers()[: 8 * count]) << SEQUENCE_SHIFT
    wrong_sequence = (heads ^ expected) & _number(array("Q", [_SEQUENCE_BITS]) * count)
    wrong = heads ^ stamps ^ values ^ checks | wrong_sequence
    kinds, phases = raw[_KIND_BYTE::RECORD_BYTES], raw[_PHASE_BYTE::RECORD_BYTES]
    known = map(_number, (kinds.translate(_KNOWN_KINDS), phases.translate(_KNOWN_PHASES)))
    valid = reduce(and_, known).to_bytes(count, sys.byteorder)
    if wrong:
        fits = map(not_, words_of(wrong.to_bytes(8 * count, sys.byteorder)))
        valid = bytes(map(and_, valid, fits))
    return RingRecords(kinds, phases, columns[1].tolist(), columns[2]), valid


def _number(words: array[int] | bytes) -> int:
    return int.from_bytes(words, sys.byteorder)


@cache
def _sequence_numbers() -> bytes:
    """0, 1, 2, … as words, for as many records as a ring holds."""
    return array("Q", range(RECORD_COUNT)).tobytes()


_FLOCK: Final = struct.Struct("hhqqi4x")

LOCK_QUESTION: Final = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
"""For ``F_GETLK``, which locks nothing: which lock conflicts with one on byte 0?"""


class LockState(NamedTuple):
    """Whether a ring's writer lives, and its pid on this host (0: unknown)."""

    held: bool
    pid: int


def read_lock_answer(raw: bytes) -> LockState:
    """Decode the kernel's answer to ``LOCK_QUESTION``."""
    kind, _, _, _, pid = _FLOCK.unpack(raw)
    return LockState(kind != fcntl.F_UNLCK, max(pid, 0))
