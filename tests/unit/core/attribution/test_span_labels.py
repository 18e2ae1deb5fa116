"""Specification of span labels: how the idle time of each phase and mode is attributed."""

from __future__ import annotations

import pytest

from gpumon.core.attribution.idle_sharing import WindowParts
from gpumon.core.attribution.span_labels import (
    EPOCH_WAIT_CODE,
    INPUT_WAIT_CODE,
    LABELS,
    START_UP_CODE,
    SUSPENDED_CODE,
    TRAIN_STEP_CODE,
    SpanLabel,
    add_length,
    codes_of,
)
from gpumon.core.phase import IdleCause, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords

TRAIN, VALIDATES, _, BESIDE = TrainingMode
WAIT, STEP, OTHER = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.OTHER
INPUT_WAIT = IdleCause.INPUT_WAIT


def entered(phase: TrainingPhase, mode: int = TRAIN) -> RingRecords:
    return RingRecords.of([RingEvent(RingKind.ENTER, 5, phase, mode)])


def label_of(phase: TrainingPhase, mode: int = TRAIN) -> SpanLabel:
    return LABELS[codes_of(entered(phase, mode))[0]]


class TestCodes:
    def test_are_one_for_each_phase_that_is_entered(self) -> None:
        wait, step, start = entered(WAIT)[0], entered(STEP)[0], entered(TrainingPhase.START_UP)[0]
        counted = RingEvent(RingKind.STEP, 5, STEP, 1)
        amount = RingEvent(RingKind.AMOUNT, 5, TrainingPhase.COMPILE, 7)

        codes = codes_of(RingRecords.of([start, amount, wait, counted, step, wait]))

        assert [*codes] == [START_UP_CODE, INPUT_WAIT_CODE, TRAIN_STEP_CODE, INPUT_WAIT_CODE]

    @pytest.mark.parametrize("value", [len(TrainingMode), 255])
    def test_treat_an_unknown_mode_as_training(self, value: int) -> None:
        assert codes_of(entered(WAIT, value)) == codes_of(entered(WAIT, TRAIN))

    @pytest.mark.parametrize("mode", TrainingMode)
    def test_read_the_mode_from_the_lowest_byte_alone(self, mode: TrainingMode) -> None:
        assert codes_of(entered(WAIT, mode | 1 << 40)) == codes_of(entered(WAIT, mode))


ADDED: dict[str, tuple[SpanLabel, WindowParts]] = {
    "a wait for input": (label_of(WAIT), WindowParts(waits={INPUT_WAIT: 30})),
    "a wait at the start of an epoch": (
        LABELS[EPOCH_WAIT_CODE],
        WindowParts(waits={INPUT_WAIT: 30}, epoch_input_wait_ns=30),
    ),
    "a wait in validation": (
        label_of(WAIT, VALIDATES),
        WindowParts(waits={INPUT_WAIT: 30}, validation_input_wait_ns=30),
    ),
    "a wait beside the step": (label_of(WAIT, BESIDE), WindowParts(gross_input_wait_ns=30)),
    "a step": (label_of(STEP), WindowParts(step_ns=30)),
    "a step of validation": (label_of(STEP, VALIDATES), WindowParts(validation_ns=30)),
    "untagged code": (label_of(OTHER), WindowParts(silent_ns=30)),
    "a stop": (LABELS[SUSPENDED_CODE], WindowParts(waits={IdleCause.NOT_IN_USE: 30})),
}


class TestALength:
    @pytest.mark.parametrize("what", ADDED)
    def test_is_counted_as(self, what: str) -> None:
        label, expected = ADDED[what]
        parts = WindowParts()

        add_length(parts, label, 10)
        add_length(parts, label, 20)

        assert parts == expected
