"""Specification of the ring's bytes: valid ones are read, all others are refused."""

from __future__ import annotations

import struct
from functools import reduce
from operator import xor

import pytest

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingMode, TrainingPhase
from gpumon.core.ring_format.format import (
    HEADER_BYTES,
    MAGIC,
    RECORD_COUNT,
    SEQUENCE_MASK,
    T_XOR,
    TOTALS_AT_WORDS,
    TOTALS_WORDS,
    VERSION,
    RingHeader,
    RingTotals,
    is_blank,
    newest_totals,
    parse_header,
)
from gpumon.errors import RingError


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


class TestTheHeader:
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
    def test_is_refused_if_it_is_anything_else(self, raw: bytes, reason: str) -> None:
        with pytest.raises(RingError, match=reason):
            parse_header(raw)

    def test_without_its_magic_is_still_being_written(self) -> None:
        assert is_blank(header(magic=b"\0" * 8))
        assert not is_blank(header())


def test_each_word_of_the_header_has_its_place() -> None:
    words = [0, 1, 65_536, 3, 4, 5, 6, 7, 0, *[0] * 119]
    raw = b"GPUMRING" + struct.pack("=127Q", *words[1:])

    assert parse_header(raw) == RingHeader(3, 4, 5, 6, 7, is_closed=False)
    assert parse_header(raw[:64] + struct.pack("=Q", 1) + raw[72:]).is_closed


@pytest.mark.parametrize("first_word", [16, 48])
def test_each_word_of_the_totals_has_its_place(first_word: int) -> None:
    words = [7, 3 | 2 << 8, 30, 40, 50, 61, 70, 0, *range(100, 100 + len(PHASES))]
    words += [0] * (24 - len(words))
    page = [0] * 128
    page[first_word : first_word + 25] = [*words, reduce(xor, words)]

    assert newest_totals(struct.pack("=128Q", *page), published=7) == RingTotals(
        generation=7,
        present=PHASES[3],
        mode=2,
        since_ns=30,
        steps=40,
        samples=50,
        epoch=60,
        last_ns=70,
        phase_ns=tuple(range(100, 100 + len(PHASES))),
    )


TORN = [word ^ (at == 3) for at, word in enumerate(totals_copy(5))]


class TestTheTotals:
    @pytest.mark.parametrize(
        ("copies", "published", "generation"),
        [
            ((totals_copy(4), totals_copy(5)), 5, 5),
            ((totals_copy(4), TORN), 5, 4),
            ((totals_copy(6), totals_copy(5)), 5, 5),
        ],
        ids=["newest", "older where the newer is torn", "newest that is published"],
    )
    def test_are_those_of_the_copy_that_is(
        self, copies: tuple[list[int], list[int]], published: int, generation: int
    ) -> None:
        totals = newest_totals(page_with(*copies), published)

        assert totals is not None
        assert totals.generation == generation
        assert totals.phase_ns[PHASE_NUMBER[TrainingPhase.INPUT_WAIT]] == 100 * generation

    def test_are_refused_if_a_phase_does_not_exist(self) -> None:
        no_mode = len(TrainingMode) << 8
        copies = page_with(totals_copy(4, word_1=len(PHASES)), totals_copy(5, word_1=no_mode))

        assert newest_totals(copies, published=9) is None
