"""Specification of epoch starts: which waits for input are due to a restarted loader."""

from __future__ import annotations

import pytest

from gpumon.core.attribution.first_waits import EpochStarts
from gpumon.core.attribution.span_labels import EPOCH_WAIT_CODE, INPUT_WAIT_CODE, codes_of
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    LOOP_BEGAN,
    LOOP_ENDED,
    TRAINING_OVER,
    RingEvent,
    RingKind,
    RingRecords,
)


def enter(phase: TrainingPhase, mode: TrainingMode = TrainingMode.TRAIN) -> RingEvent:
    return RingEvent(RingKind.ENTER, 0, phase, mode)


def mark(kind: RingKind, value: int = 1) -> RingEvent:
    return RingEvent(kind, 0, TrainingPhase.OTHER, value)


WAIT, OTHER, WORK = (
    enter(TrainingPhase.INPUT_WAIT),
    enter(TrainingPhase.OTHER),
    enter(TrainingPhase.TRAIN_STEP),
)
STEP, EPOCH, LOOP = (
    mark(RingKind.STEP),
    mark(RingKind.EPOCH),
    mark(RingKind.EVENT, LOOP_BEGAN),
)
BATCH = [WAIT, WORK, STEP]


def waits(*ticks: list[RingEvent]) -> str:
    """Each wait for input of these ticks: ``E`` at the start of an epoch, else ``-``."""
    starts, known = EpochStarts(), bytearray()
    for tick in ticks:
        records = RingRecords.of(tick)
        known += starts.mark_waits(records, codes_of(records), known)
    kinds = {EPOCH_WAIT_CODE: "E", INPUT_WAIT_CODE: "-"}
    return "".join(kinds.get(code, "") for code in known)


class TestAWaitIsAtTheStartOfAnEpoch:
    @pytest.mark.parametrize("start", [EPOCH, LOOP], ids=["epoch", "loop"])
    def test_where_a_mark_comes_before_it(self, start: RingEvent) -> None:
        assert waits([*BATCH, start, *BATCH, *BATCH]) == "-E-"

    @pytest.mark.parametrize("start", [EPOCH, LOOP], ids=["epoch", "loop"])
    def test_where_the_mark_comes_inside_it(self, start: RingEvent) -> None:
        assert waits([*BATCH, WAIT, start, WORK, STEP, *BATCH]) == "-E-"

    def test_where_the_mark_comes_a_tick_earlier(self) -> None:
        assert waits([*BATCH, EPOCH], [OTHER], BATCH, BATCH) == "-E-"

    def test_where_the_mark_comes_inside_it_a_tick_later(self) -> None:
        assert waits([*BATCH, WAIT], [EPOCH, WORK, STEP], BATCH) == "-E-"

    def test_until_the_first_step_phase(self) -> None:
        assert waits([*BATCH, EPOCH, WAIT, OTHER, WAIT, WORK, WAIT]) == "-EE-"

    def test_until_the_first_step_that_is_counted(self) -> None:
        assert waits([*BATCH, EPOCH, WAIT, OTHER, WAIT, STEP, WAIT]) == "-EE-"

    def test_in_each_further_epoch(self) -> None:
        epoch = [EPOCH, *BATCH, *BATCH]

        assert waits(epoch, epoch, epoch) == "--E-E-"

    def test_after_a_validation_in_between(self) -> None:
        tests = enter(TrainingPhase.TRAIN_STEP, TrainingMode.VALIDATION)

        assert waits([*BATCH, EPOCH, tests, *BATCH]) == "-E"


class TestNoWaitIsAtTheStartOfAnEpoch:
    @pytest.mark.parametrize("start", [EPOCH, LOOP], ids=["epoch", "loop"])
    def test_in_the_first_epoch(self, start: RingEvent) -> None:
        assert waits([start, *BATCH, *BATCH]) == "--"

    def test_in_the_first_epoch_that_lasts_for_several_ticks(self) -> None:
        assert waits([EPOCH, WAIT], [OTHER, WAIT], [WORK, STEP], BATCH) == "---"

    @pytest.mark.parametrize("value", [0, LOOP_ENDED, TRAINING_OVER])
    def test_after_another_mark(self, value: int) -> None:
        assert waits([*BATCH, mark(RingKind.EVENT, value), *BATCH]) == "--"

    def test_after_a_number_of_steps_that_looks_like_a_loop(self) -> None:
        counted = mark(RingKind.STEP, LOOP_BEGAN)

        assert waits([*BATCH, counted, *BATCH, mark(RingKind.EVENT, 0), *BATCH]) == "---"

    def test_before_the_mark_once_it_has_ended(self) -> None:
        assert waits([*BATCH, WAIT, OTHER, EPOCH, *BATCH]) == "--E"

    @pytest.mark.parametrize("mode", [TrainingMode.VALIDATION, TrainingMode.BESIDE_STEP])
    def test_in_validation_or_beside_a_step(self, mode: TrainingMode) -> None:
        wait = enter(TrainingPhase.INPUT_WAIT, mode)
        records = RingRecords.of([*BATCH, EPOCH, wait])
        codes = codes_of(records)

        assert EpochStarts().mark_waits(records, codes, bytearray()) == codes


class TestAMark:
    def test_before_any_phase_changes_nothing(self) -> None:
        assert waits([STEP, EPOCH]) == ""

    def test_leaves_a_phase_that_is_no_wait_as_it_is(self) -> None:
        starts, known = EpochStarts(), bytearray(codes_of(RingRecords.of([OTHER])))
        before = bytes(known)

        starts.mark_waits(RingRecords.of([STEP, EPOCH]), b"", known)

        assert bytes(known) == before
