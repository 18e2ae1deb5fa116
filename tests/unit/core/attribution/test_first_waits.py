"""Specification of the first batch: what ends the wait for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords
from tests.builders.time import s

START_UP, WAIT, OTHER = TrainingPhase.START_UP, TrainingPhase.INPUT_WAIT, TrainingPhase.OTHER
STEP, VALIDATION = TrainingPhase.TRAIN_STEP, TrainingPhase.VALIDATION


def enter(at_s: float, phase: TrainingPhase) -> RingEvent:
    return RingEvent(RingKind.ENTER, s(at_s), phase, TrainingMode.TRAIN)


def step(at_s: float, count: int) -> RingEvent:
    return RingEvent(RingKind.STEP, s(at_s), OTHER, count)


WAITS_TWICE = (enter(0, START_UP), enter(1, WAIT), enter(4, OTHER), enter(5, WAIT), enter(7, OTHER))


def first_and_all(
    events: Sequence[RingEvent], active_s: Sequence[tuple[float, float]] = ()
) -> tuple[int | None, int, int]:
    """What the run says it waited for its first batch, and what of a window of 10 s was that."""
    run = PhaseTimeline()
    for event in events:
        run.extend(RingRecords.of((event,)), event.at_ns)
    run.extend(RingRecords.of(()), s(10))
    for start_s, end_s in active_s:
        run.note_activity(s(start_s), s(end_s))
    parts = run.parts(0, s(10))
    return run.first_input_wait_ns, parts.first_input_wait_ns, parts.waits[IdleCause.INPUT_WAIT]


class TestTheFirstBatchHasCome:
    def test_at_the_first_step_that_is_counted(self) -> None:
        events = (*WAITS_TWICE[:3], step(4.5, 1), *WAITS_TWICE[3:])

        assert first_and_all(events) == (s(3), s(3), s(5))

    @pytest.mark.parametrize("phase", [STEP, VALIDATION])
    def test_where_the_device_is_first_given_work(self, phase: TrainingPhase) -> None:
        events = (*WAITS_TWICE[:2], enter(4, phase), *WAITS_TWICE[3:])

        assert first_and_all(events) == (s(3), s(3), s(5))

    def test_where_a_second_wait_follows_activity_of_the_gpu(self) -> None:
        assert first_and_all(WAITS_TWICE, [(4.1, 4.9)]) == (s(3), s(3), s(5))

    def test_where_the_second_wait_begins_within_the_active_sample(self) -> None:
        assert first_and_all(WAITS_TWICE, [(3.5, 5.5)]) == (s(3), s(3), s(5))

    def test_before_anybody_observed_what_the_gpu_did_between_two_waits(self) -> None:
        assert first_and_all(WAITS_TWICE, [(0, 6)]) == (s(3), s(3), s(5))


class TestItHasNotCome:
    def test_while_the_gpu_was_never_active(self) -> None:
        waited, in_window, _ = first_and_all(WAITS_TWICE)

        assert in_window == s(5)
        assert waited == s(3)  # it is not known yet what the second wait is for

    def test_where_only_the_first_wait_was_active(self) -> None:
        assert first_and_all(WAITS_TWICE, [(1, 3.9)])[1] == s(5)

    def test_where_a_loader_is_made_before_it_is_asked(self) -> None:
        made = (enter(0, START_UP), enter(1, WAIT), enter(1.5, OTHER), enter(1.501, WAIT))
        events = (*made, enter(4, OTHER), enter(5, WAIT), enter(7, OTHER))

        assert first_and_all(events, [(4, 5)])[:2] == (s(2.999), s(2.999))

    def test_until_a_later_step_all_waits_before_it_were_for_it(self) -> None:
        assert first_and_all((*WAITS_TWICE, step(8, 1))) == (s(5), s(5), s(5))


class TestARunWhoseBeginningIsLost:
    def test_has_no_first_batch(self) -> None:
        assert first_and_all(WAITS_TWICE[1:]) == (None, 0, s(5))


def test_the_wait_of_a_validation_before_the_first_step_is_reported_once() -> None:
    """As Lightning's sanity check waits for its batches."""
    sanity = RingEvent(RingKind.ENTER, s(1), WAIT, TrainingMode.VALIDATION)
    later = sanity._replace(at_ns=s(6))
    run = PhaseTimeline()
    events = (enter(0, START_UP), sanity, enter(3, STEP), step(5, 1), later, enter(8, STEP))
    run.extend(RingRecords.of(events), s(10))

    for window_s, of_first_s, of_validation_s in (((0, 10), 2, 2), ((0, 2), 1, 0), ((5, 7), 0, 1)):
        start_s, end_s = window_s
        parts = run.parts(s(start_s), s(end_s))
        found = parts.first_input_wait_ns, parts.validation_input_wait_ns
        assert found == (s(of_first_s), s(of_validation_s))
