"""Specification of the ring's bytes: what was written is read, and nothing else is believed."""

from __future__ import annotations

import struct
from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingEvent, RingKind, RingRecords
from gpumon.core.ring.format import (
    HEADER_BYTES,
    MAGIC,
    PAGE_BYTES,
    RECORD_BYTES,
    RECORD_COUNT,
    RING_BYTES,
    SEQUENCE_MASK,
    T_XOR,
    TOTALS_AT_WORDS,
    TOTALS_WORDS,
    VERSION,
    decode_records,
    is_blank,
    newest_totals,
    parse_header,
)
from gpumon.errors import RingError
from tests.ring_contents import record_words

words = st.integers(0, (1 << 64) - 1)


def header(
    magic: bytes = MAGIC, version: int = VERSION, records: int = RECORD_COUNT, head: int = 5
) -> bytes:
    page = struct.pack("=8sQQQQQQQ", magic, version, records, 1, head, 2, 100, 7)
    return page.ljust(HEADER_BYTES, b"\0")


def totals_copy(generation: int, **changed: int) -> list[int]:
    copy = [0] * TOTALS_WORDS
    copy[0] = generation
    copy[8 + PHASE_NUMBER[TrainingPhase.INPUT_WAIT]] = generation * 100
    for word, value in changed.items():
        copy[int(word.removeprefix("word_"))] = value
    copy[T_XOR] = reduce(xor, copy[:T_XOR])
    return copy


def page_with(*copies: list[int] | None) -> bytes:
    page = [0] * (HEADER_BYTES // 8)
    for at, copy in zip(TOTALS_AT_WORDS, copies, strict=True):
        if copy is not None:
            page[at : at + TOTALS_WORDS] = copy
    return struct.pack(f"={len(page)}Q", *page)


def record(sequence: int, kind: RingKind = RingKind.STEP, value: int = 7) -> bytes:
    return struct.pack("=4Q", *record_words(sequence, kind, 4, 1_000, value))


class TestTheHeader:
    def test_says_how_far_the_ring_is_written(self) -> None:
        assert parse_header(header(head=12)).head == 12

    def test_is_as_large_as_the_decision_record_says(self) -> None:
        assert (PAGE_BYTES, RECORD_BYTES, RING_BYTES) == (4096, 32, 2_101_248)

    @pytest.mark.parametrize(
        ("raw", "reason"),
        [
            (header(magic=b"GPUMRIN!"), "not a phase ring"),
            (header()[:-1], "not a phase ring"),
            (header(version=2), "version 2"),
            (header(records=65_535), "65535 records"),
            (header(head=SEQUENCE_MASK + 1), "impossible number"),
        ],
    )
    def test_of_anything_else_is_refused(self, raw: bytes, reason: str) -> None:
        with pytest.raises(RingError, match=reason):
            parse_header(raw)

    def test_without_its_magic_is_still_being_made(self) -> None:
        assert is_blank(header(magic=b"\0" * 8))
        assert not is_blank(header())

    @given(st.binary(max_size=2 * HEADER_BYTES))
    def test_of_any_bytes_is_read_or_refused(self, raw: bytes) -> None:
        try:
            parse_header(raw)
        except RingError:
            return
        assert raw.startswith(MAGIC)


class TestTheTotals:
    def test_are_those_of_the_newest_copy(self) -> None:
        totals = newest_totals(page_with(totals_copy(4), totals_copy(5)), published=5)

        assert totals is not None
        assert totals.phase_ns[PHASE_NUMBER[TrainingPhase.INPUT_WAIT]] == 500

    def test_fall_back_to_the_older_copy_where_the_newer_is_torn(self) -> None:
        torn = totals_copy(5)
        torn[3] += 1

        totals = newest_totals(page_with(totals_copy(4), torn), published=5)

        assert totals is not None
        assert totals.generation == 4

    def test_leave_out_a_copy_that_is_not_published_yet(self) -> None:
        totals = newest_totals(page_with(totals_copy(6), totals_copy(5)), published=5)

        assert totals is not None
        assert totals.generation == 5

    def test_are_missing_where_both_copies_are_torn(self) -> None:
        torn = totals_copy(4)
        torn[T_XOR] ^= 1

        assert newest_totals(page_with(torn, torn), published=9) is None

    def test_of_a_phase_that_does_not_exist_are_refused(self) -> None:
        no_mode = len(TrainingMode) << 8
        copies = page_with(totals_copy(4, word_1=len(PHASES)), totals_copy(5, word_1=no_mode))

        assert newest_totals(copies, published=9) is None

    def test_before_the_first_epoch_have_none(self) -> None:
        before = newest_totals(page_with(totals_copy(2), None), published=2)
        first = newest_totals(page_with(totals_copy(2, word_5=1), None), published=2)

        assert before is not None
        assert first is not None
        assert (before.epoch, first.epoch) == (None, 0)

    @given(st.binary(max_size=2 * HEADER_BYTES), words)
    def test_of_any_bytes_are_read_or_missing(self, raw: bytes, published: int) -> None:
        found = newest_totals(raw, published)

        assert found is None or all(spent_ns >= 0 for spent_ns in found.phase_ns)


def decoded(raw: bytes, first_sequence: int) -> list[RingEvent | None]:
    """Each record, and ``None`` for one that is not whole."""
    records, whole = decode_records(raw, first_sequence)
    return [event if fits else None for event, fits in zip(lenient(records), whole, strict=True)]


def lenient(records: RingRecords) -> list[RingEvent | None]:
    """Each record, and ``None`` for one of an unknown kind or phase, which has no name."""
    known = {int(kind) for kind in RingKind}
    return [
        records[at] if kind in known and phase < len(PHASES) else None
        for at, (kind, phase) in enumerate(zip(records.kinds, records.phases, strict=True))
    ]


class TestARecord:
    @given(
        st.integers(0, SEQUENCE_MASK),
        st.sampled_from(list(RingKind)),
        st.integers(0, len(PHASES) - 1),
        words,
        words,
    )
    def test_is_read_as_it_was_written(
        self, sequence: int, kind: RingKind, phase: int, at_ns: int, value: int
    ) -> None:
        raw = struct.pack("=4Q", *record_words(sequence, kind, phase, at_ns, value))

        assert decoded(raw, sequence) == [RingEvent(kind, at_ns, PHASES[phase], value)]

    def test_of_an_older_lap_is_not_believed(self) -> None:
        assert decoded(record(3), 3 + RECORD_COUNT) == [None]

    @given(st.integers(0, 3), st.integers(1, (1 << 64) - 1))
    def test_with_any_word_of_another_record_is_not_believed(self, word: int, other: int) -> None:
        torn = list(record_words(3, RingKind.STEP, 4, 1_000, 7))
        torn[word] ^= other

        assert decoded(struct.pack("=4Q", *torn), 3) == [None]

    def test_that_was_never_written_is_not_believed(self) -> None:
        assert decoded(bytes(RECORD_BYTES), 0) == [None]

    @pytest.mark.parametrize("kind", [0, 8, 255])
    def test_of_an_unknown_kind_is_not_believed(self, kind: int) -> None:
        head = 3 << 16 | kind << 8 | 4
        raw = struct.pack("=4Q", head, 1, 2, head ^ 1 ^ 2)

        assert decoded(raw, 3) == [None]

    def test_that_is_torn_leaves_its_neighbours_alone(self) -> None:
        raw = record(3) + bytes(RECORD_BYTES) + record(5)

        assert [event is not None for event in decoded(raw, 3)] == [True, False, True]

    @given(st.binary(max_size=10 * RECORD_BYTES), st.integers(0, SEQUENCE_MASK))
    def test_of_any_bytes_is_read_or_refused(self, raw: bytes, sequence: int) -> None:
        assert len(decoded(raw, sequence)) == len(raw) // RECORD_BYTES
