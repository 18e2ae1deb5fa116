"""Specification of a ring's records, as columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import PHASES, TrainingPhase
from gpumon.core.ring_format.events import (
    LOOP_BEGAN,
    LOOP_ENDED,
    TRAINING_OVER,
    RingEvent,
    RingKind,
    RingRecords,
)
from gpumon.core.ring_format.format import RECORD_BYTES, RECORD_COUNT, SEQUENCE_MASK, decode_records
from tests.ring_contents import record_words

SEQUENCES = (0, 7, 65_530, 65_536 * 9 + 65_500, (1 << 32) - 3, (1 << 48) - 4)
ANY_WORD = st.integers(0, (1 << 64) - 1)

events = st.builds(
    RingEvent,
    st.sampled_from(RingKind),
    st.integers(0, 20_000) | ANY_WORD,
    st.sampled_from(PHASES),
    st.integers(0, 3) | ANY_WORD,
)
histories = st.lists(events, min_size=1, max_size=80)


def raw_of(history: Sequence[RingEvent], first_sequence: int = 0) -> bytes:
    words = array("Q")
    for number, (kind, at_ns, phase, value) in enumerate(history):
        words.extend(record_words(first_sequence + number, kind, PHASES.index(phase), at_ns, value))
    return words.tobytes()


def columns_of(history: Sequence[RingEvent], first_sequence: int = 0) -> RingRecords:
    records, whole = decode_records(raw_of(history, first_sequence), first_sequence)
    assert all(whole)
    return records


def test_kinds_and_events_have_the_numbers_of_version_1() -> None:
    names = ["ENTER", "AMOUNT", "DEVICE_DONE", "STEP", "SAMPLES", "EPOCH", "EVENT"]

    assert {kind.name: int(kind) for kind in RingKind} == dict(zip(names, range(1, 8), strict=True))
    assert (TRAINING_OVER, LOOP_BEGAN, LOOP_ENDED) == (1 << 32, 1 << 33, (1 << 33) + 1)


class TestRecordsInColumns:
    @given(
        history=histories,
        first_sequence=st.sampled_from(SEQUENCES) | st.integers(0, SEQUENCE_MASK),
        at=st.integers(0, 80),
        kind=st.sampled_from(RingKind),
    )
    def test_are_the_records_that_were_written(
        self, history: list[RingEvent], first_sequence: int, at: int, kind: RingKind
    ) -> None:
        records = columns_of(history, first_sequence)

        assert list(records) == history
        assert records == RingRecords.of(history)
        stamps_ns = [event.at_ns for event in history]
        assert records.is_in_order == (stamps_ns == sorted(stamps_ns))
        kept = [number != at for number in range(len(history))]
        assert list(records.where(kept)) == history[:at] + history[at + 1 :]
        of_kind = [number for number, event in enumerate(history) if event.kind is kind]
        assert records.positions(kind) == of_kind
        assert list(records.selected(kind)) == [event.kind is kind for event in history]
        assert records.newest(kind) == (history[of_kind[-1]] if of_kind else None)
        assert list(records.modes) == [event.value & 0xFF for event in history]


class TestInvalidRecords:
    @given(
        history=histories,
        first_sequence=st.sampled_from(SEQUENCES),
        at=st.integers(0, 1 << 16),
        other=st.integers(1, (1 << 64) - 1),
    )
    def test_are_left_out_if_any_word_was_changed(
        self, history: list[RingEvent], first_sequence: int, at: int, other: int
    ) -> None:
        words = array("Q", raw_of(history, first_sequence))
        words[at % len(words)] ^= other

        records, whole = decode_records(words.tobytes(), first_sequence)

        torn = at % len(words) * 8 // RECORD_BYTES
        assert list(whole) == [number != torn for number in range(len(history))]
        assert list(records.where(whole)) == history[:torn] + history[torn + 1 :]

    @pytest.mark.parametrize("ahead", [1, RECORD_COUNT, -1])
    def test_have_another_sequence_number(self, ahead: int) -> None:
        history = [RingEvent(RingKind.STEP, 5, TrainingPhase.OTHER, 1)] * 3

        assert not any(decode_records(raw_of(history, 65_536 * 3), 65_536 * 3 + ahead)[1])

    @pytest.mark.parametrize(
        ("kind", "phase"), [(0, 0), (0, 4), (8, 0), (8, 4), (255, 3), (1, 12), (1, 255)]
    )
    @pytest.mark.parametrize("words", [(5, 6), (0, 0)])
    def test_have_an_unknown_kind_or_phase(
        self, kind: int, phase: int, words: tuple[int, int]
    ) -> None:
        head = kind << 8 | phase
        raw = array("Q", (head, *words, head ^ words[0] ^ words[1])).tobytes()

        assert len(raw) == RECORD_BYTES
        assert decode_records(raw, 0)[1] == b"\0"
