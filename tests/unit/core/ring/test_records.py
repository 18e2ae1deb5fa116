"""Specification of records in columns: the same as one by one, only sooner."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.join.timeline import PhaseTimeline
from gpumon.core.phase import PHASES, TrainingPhase
from gpumon.core.ring.events import RingEvent, RingKind
from gpumon.core.ring.format import RECORD_BYTES, decode_records, record_words
from gpumon.core.ring.records import RingRecords, whole_records

SEQUENCES = (0, 7, 65_530, 65_536 * 9 + 65_500, (1 << 32) - 3, (1 << 48) - 4)
LATEST_NS = 20_000

events = st.builds(
    RingEvent,
    st.sampled_from(RingKind),
    st.integers(0, LATEST_NS),
    st.sampled_from(PHASES),
    st.integers(0, 3) | st.integers(0, 400),
)
histories = st.lists(events, min_size=1, max_size=80)


def with_growing_steps(history: Sequence[RingEvent]) -> list[RingEvent]:
    """The same, but that steps are counted up, as every writer does."""
    grown, steps = [], 0
    for event in history:
        if event.kind is RingKind.STEP:
            steps = max(steps, event.value)
            event = event._replace(value=steps)
        grown.append(event)
    return grown


def raw_of(history: Sequence[RingEvent], first_sequence: int = 0) -> bytes:
    words = array("Q")
    for number, (kind, at_ns, phase, value) in enumerate(history):
        words.extend(record_words(first_sequence + number, kind, PHASES.index(phase), at_ns, value))
    return words.tobytes()


def columns_of(history: Sequence[RingEvent], first_sequence: int = 0) -> RingRecords:
    records = whole_records(raw_of(history, first_sequence), first_sequence)
    assert records is not None
    return records


class TestRecordsInColumns:
    @given(history=histories, first_sequence=st.sampled_from(SEQUENCES))
    def test_are_the_records_that_were_written(
        self, history: list[RingEvent], first_sequence: int
    ) -> None:
        records = columns_of(history, first_sequence)

        assert list(records) == history
        assert [records[at] for at in range(len(records))] == history
        assert records[1:] == tuple(history[1:])
        assert records == history

    @given(history=histories)
    def test_know_whether_they_are_in_order(self, history: list[RingEvent]) -> None:
        stamps = [event.at_ns for event in history]

        assert columns_of(history).is_in_order == (stamps == sorted(stamps))

    @given(history=histories, earliest=st.integers(0, LATEST_NS), latest=st.integers(0, LATEST_NS))
    def test_know_whether_their_stamps_are_possible(
        self, history: list[RingEvent], earliest: int, latest: int
    ) -> None:
        possible = all(earliest <= event.at_ns <= latest for event in history)

        assert columns_of(history).lies_within(earliest, latest) == possible

    @given(history=histories, kind=st.sampled_from(RingKind), other=st.sampled_from(RingKind))
    def test_say_where_those_of_a_kind_are(
        self, history: list[RingEvent], kind: RingKind, other: RingKind
    ) -> None:
        records = columns_of(history)

        assert list(records.selected(kind)) == [event.kind is kind for event in history]
        assert list(records.positions(kind, other)) == [
            at for at, event in enumerate(history) if event.kind in (kind, other)
        ]


class TestRecordsThatAreNotWhole:
    @given(
        history=histories,
        first_sequence=st.sampled_from(SEQUENCES),
        at=st.integers(0, 1 << 16),
        bit=st.integers(0, 7),
    )
    def test_are_none_if_any_bit_is_not_as_it_was_written(
        self, history: list[RingEvent], first_sequence: int, at: int, bit: int
    ) -> None:
        raw = bytearray(raw_of(history, first_sequence))
        raw[at % len(raw)] ^= 1 << bit

        assert whole_records(bytes(raw), first_sequence) is None
        assert None in decode_records(bytes(raw), first_sequence)

    @pytest.mark.parametrize("ahead", [1, 65_536, -1])
    def test_are_none_if_they_are_others_than_those_asked_for(self, ahead: int) -> None:
        history = [RingEvent(RingKind.STEP, 5, TrainingPhase.OTHER, 1)] * 3

        assert whole_records(raw_of(history, 65_536 * 3), 65_536 * 3 + ahead) is None

    @pytest.mark.parametrize(("kind", "phase"), [(0, 0), (8, 0), (255, 3), (1, 12), (1, 255)])
    def test_are_none_if_a_kind_or_phase_is_unknown(self, kind: int, phase: int) -> None:
        head = kind << 8 | phase
        raw = array("Q", (head, 5, 6, head ^ 5 ^ 6)).tobytes()

        assert len(raw) == RECORD_BYTES
        assert whole_records(raw, 0) is None


class TestATimeline:
    @given(
        history=histories,
        cuts=st.lists(st.integers(0, 80), max_size=3),
        window=st.tuples(st.integers(0, LATEST_NS), st.integers(1, LATEST_NS)),
        in_order=st.booleans(),
    )
    def test_says_the_same_of_columns_as_of_records_one_by_one(
        self,
        history: list[RingEvent],
        cuts: list[int],
        window: tuple[int, int],
        in_order: bool,
    ) -> None:
        history = with_growing_steps(history)
        if in_order:  # and no two at one instant, whose order no clock can tell
            stamps = sorted({event.at_ns for event in history})
            history = [e._replace(at_ns=at) for e, at in zip(history, stamps, strict=False)]
        at_once, one_by_one = PhaseTimeline(), PhaseTimeline()
        bounds = sorted({0, *(cut % len(history) for cut in cuts), len(history)})
        for start, end in pairwise(bounds):
            at_once.extend(columns_of(history[start:end]), LATEST_NS)
            one_by_one.extend(tuple(history[start:end]), LATEST_NS)
        start_ns, end_ns = window[0], window[0] + window[1]

        assert at_once.covered_ns(start_ns, end_ns) == one_by_one.covered_ns(start_ns, end_ns)
        assert at_once.parts(start_ns, end_ns) == one_by_one.parts(start_ns, end_ns)
        at_once.forget_before(start_ns)
        assert at_once.parts(start_ns, end_ns) == one_by_one.parts(start_ns, end_ns)

    @given(history=histories, window=st.tuples(st.integers(0, 9_000), st.integers(1, LATEST_NS)))
    def test_says_the_same_of_many_spans_at_once_as_of_one_after_the_other(
        self, history: list[RingEvent], window: tuple[int, int]
    ) -> None:
        timeline = PhaseTimeline()
        timeline.extend(history, LATEST_NS)
        start_ns, end_ns = window[0], window[0] + window[1]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("gpumon.core.join.timeline._MANY_SPANS", 1)
            at_once = timeline.parts(start_ns, end_ns)
            patched.setattr("gpumon.core.join.timeline._MANY_SPANS", len(history) + 1)
            one_by_one = timeline.parts(start_ns, end_ns)

        assert at_once == one_by_one
