"""Specification of waits that are paid once: for the first batch, and at the start of epochs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.attribution.first_waits import EpochStarts
from gpumon.core.attribution.span_labels import EPOCH_WAIT_CODE, INPUT_WAIT_CODE, codes_of
from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    LOOP_BEGAN,
    LOOP_ENDED,
    RingEvent,
    RingKind,
    RingRecords,
)
from tests.builders.time import s

START_UP, WAIT, OTHER = TrainingPhase.START_UP, TrainingPhase.INPUT_WAIT, TrainingPhase.OTHER
STEP, VALIDATION = TrainingPhase.TRAIN_STEP, TrainingPhase.VALIDATION


def enter(at_s: float, phase: TrainingPhase, mode: TrainingMode = TrainingMode.TRAIN) -> RingEvent:
    return RingEvent(RingKind.ENTER, s(at_s), phase, mode)


def step(at_s: float, count: int) -> RingEvent:
    return RingEvent(RingKind.STEP, s(at_s), OTHER, count)


WAITS_TWICE = (enter(0, START_UP), enter(1, WAIT), enter(4, OTHER), enter(5, WAIT), enter(7, OTHER))

Case = tuple[Sequence[RingEvent], Sequence[tuple[float, float]], tuple[float | None, float, float]]
"""Records, and active times of the GPU. Then, in seconds: the wait for the first batch as the run
reports it, that wait in the first 10 s, and all waits for input in them."""
MADE = (enter(0, START_UP), enter(1, WAIT), enter(1.5, OTHER), enter(1.501, WAIT))
FIRST_BATCH: dict[str, Case] = {
    "has come at the first step that is counted": (
        (*WAITS_TWICE[:3], step(4.5, 1), *WAITS_TWICE[3:]), (), (3, 3, 5),
    ),
    "has come where the device is first given a step": (
        (*WAITS_TWICE[:2], enter(4, STEP), *WAITS_TWICE[3:]), (), (3, 3, 5),
    ),
    "has come where the device is first given validation": (
        (*WAITS_TWICE[:2], enter(4, VALIDATION), *WAITS_TWICE[3:]), (), (3, 3, 5),
    ),
    "has come before a wait that follows activity": (WAITS_TWICE, [(4.1, 4.9)], (3, 3, 5)),
    "has come before a wait that begins in an active sample": (
        WAITS_TWICE, [(3.5, 5.5)], (3, 3, 5),
    ),
    "has come before a wait that begins in a long active sample": (
        WAITS_TWICE, [(0, 6)], (3, 3, 5),
    ),
    "may not have come while the GPU was never active": (WAITS_TWICE, (), (3, 5, 5)),
    "may not have come if only the first wait was active": (WAITS_TWICE, [(1, 4)], (3, 5, 5)),
    "has not come where a loader is made": (
        (*MADE, enter(4, OTHER), enter(5, WAIT), enter(7, OTHER)), [(4, 5)], (2.999, 2.999, 4.999),
    ),
    "comes with a later step after all waits": ((*WAITS_TWICE, step(8, 1)), (), (5, 5, 5)),
    "is unknown of a run whose start is lost": (WAITS_TWICE[1:], (), (None, 0, 5)),
}  # fmt: skip


@pytest.mark.parametrize("what", FIRST_BATCH)
def test_the_first_batch(what: str) -> None:
    events, active_s, (waited_s, first_s, all_s) = FIRST_BATCH[what]
    run = PhaseTimeline()
    for event in events:
        run.extend(RingRecords.of((event,)), event.at_ns)
    run.extend(RingRecords.of(()), s(10))
    for start_s, end_s in active_s:
        run.note_activity(s(start_s), s(end_s))

    parts = run.parts(0, s(10))

    assert run.first_input_wait_ns == (None if waited_s is None else s(waited_s))
    assert parts.first_input_wait_ns == s(first_s)
    assert parts.waits[IdleCause.INPUT_WAIT] == s(all_s)


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


def mark(kind: RingKind, value: int = 1) -> RingEvent:
    return RingEvent(kind, 0, TrainingPhase.OTHER, value)


W, O, WORK = enter(0, WAIT), enter(0, OTHER), enter(0, STEP)  # noqa: E741
DONE, EPOCH, LOOP = mark(RingKind.STEP), mark(RingKind.EPOCH), mark(RingKind.EVENT, LOOP_BEGAN)
BATCH = [W, WORK, DONE]


MARKED: dict[str, tuple[list[list[RingEvent]], str]] = {
    "after an epoch began": ([[*BATCH, EPOCH, *BATCH, *BATCH]], "-E-"),
    "after a loop began": ([[*BATCH, LOOP, *BATCH, *BATCH]], "-E-"),
    "in which an epoch began": ([[*BATCH, W, EPOCH, WORK, DONE, *BATCH]], "-E-"),
    "after an epoch began a tick earlier": ([[*BATCH, EPOCH], [O], BATCH, BATCH], "-E-"),
    "in which an epoch began a tick later": ([[*BATCH, W], [EPOCH, WORK, DONE], BATCH], "-E-"),
    "until the first step phase": ([[*BATCH, EPOCH, W, O, W, WORK, W]], "-EE-"),
    "until the first step that is counted": ([[*BATCH, EPOCH, W, O, W, DONE, W]], "-EE-"),
    "in each epoch but the first": ([[EPOCH, *BATCH, *BATCH]] * 3, "--E-E-"),
    "never in the first loop": ([[LOOP, *BATCH, *BATCH]], "--"),
    "never in a first epoch of several ticks": ([[EPOCH, W], [O, W], [WORK, DONE], BATCH], "---"),
    "after a validation in between": (
        [[*BATCH, EPOCH, enter(0, STEP, TrainingMode.VALIDATION), *BATCH]], "-E",
    ),
    "never after the end of a loop": ([[*BATCH, mark(RingKind.EVENT, LOOP_ENDED), *BATCH]], "--"),
    "never after a number of steps that looks like a loop": (
        [[*BATCH, mark(RingKind.STEP, LOOP_BEGAN), *BATCH, mark(RingKind.EVENT, 0), *BATCH]], "---",
    ),
    "never if it ended before the mark": ([[*BATCH, W, O, EPOCH, *BATCH]], "--E"),
    "never before any phase": ([[DONE, EPOCH]], ""),
}  # fmt: skip
"""Ticks of records, and each wait for input of them: ``E`` at the start of an epoch, else ``-``."""


@pytest.mark.parametrize("which", MARKED)
def test_a_wait_is_at_the_start_of_an_epoch(which: str) -> None:
    ticks, expected = MARKED[which]
    starts, known = EpochStarts(), bytearray()
    for tick in ticks:
        records = RingRecords.of(tick)
        known += starts.mark_waits(records, codes_of(records), known)

    kinds = {EPOCH_WAIT_CODE: "E", INPUT_WAIT_CODE: "-"}
    assert "".join(kinds.get(code, "") for code in known) == expected


@pytest.mark.parametrize("mode", [TrainingMode.VALIDATION, TrainingMode.BESIDE_STEP])
def test_a_wait_in_validation_or_beside_a_step_is_not(mode: TrainingMode) -> None:
    records = RingRecords.of([*BATCH, EPOCH, enter(0, WAIT, mode)])
    codes = codes_of(records)

    assert EpochStarts().mark_waits(records, codes, bytearray()) == codes
