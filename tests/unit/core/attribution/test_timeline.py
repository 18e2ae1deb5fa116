"""Specification of the timeline: the phases in a window, and which kept the device waiting."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.attribution.idle_sharing import WindowParts
from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import PHASES, IdleCause, TrainingMode, TrainingPhase, cause_of
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords

WAIT, STEP, SYNC, CALLBACKS, VALIDATION = (
    TrainingPhase.INPUT_WAIT,
    TrainingPhase.TRAIN_STEP,
    TrainingPhase.DEVICE_SYNC,
    TrainingPhase.CALLBACKS,
    TrainingPhase.VALIDATION,
)
INPUT_WAIT = IdleCause.INPUT_WAIT


def enter(at_ns: int, phase: TrainingPhase, mode: TrainingMode = TrainingMode.TRAIN) -> RingEvent:
    return RingEvent(RingKind.ENTER, at_ns, phase, mode)


def step(at_ns: int, count: int) -> RingEvent:
    return RingEvent(RingKind.STEP, at_ns, TrainingPhase.OTHER, count)


def done(at_ns: int, step: int) -> RingEvent:
    return RingEvent(RingKind.DEVICE_DONE, at_ns, TrainingPhase.OTHER, step)


def amount(at_ns: int, phase: TrainingPhase, length_ns: int) -> RingEvent:
    return RingEvent(RingKind.AMOUNT, at_ns, phase, length_ns)


def timeline(*events: RingEvent, until_ns: int) -> PhaseTimeline:
    made = PhaseTimeline()
    made.extend(RingRecords.of(events), until_ns)
    return made


BESIDE, VALIDATES = TrainingMode.BESIDE_STEP, TrainingMode.VALIDATION
FETCHES_MORE = [
    enter(0, WAIT), enter(100, STEP), enter(200, WAIT, BESIDE),
    enter(500, STEP), enter(600, WAIT, BESIDE),
]  # fmt: skip
PARTS: dict[str, tuple[list[RingEvent], tuple[int, int], WindowParts]] = {
    "lasts until the next one begins": (
        [enter(0, WAIT), enter(300, STEP), enter(900, WAIT)], (0, 900),
        WindowParts(waits={INPUT_WAIT: 300}, step_ns=600),
    ),
    "counts as far as it lies in the window": (
        [enter(0, WAIT), enter(300, STEP), enter(900, WAIT)], (200, 1000),
        WindowParts(waits={INPUT_WAIT: 200}, step_ns=600),
    ),
    "is none before the first": (
        [enter(100, WAIT)], (0, 1000), WindowParts(waits={INPUT_WAIT: 900}, outside_ns=100),
    ),
    "may hold an amount of another": (
        [enter(0, STEP), amount(900, TrainingPhase.COMPILE, 250), enter(1000, CALLBACKS)],
        (0, 1000), WindowParts(waits={IdleCause.COMPILE: 250}, step_ns=750),
    ),
    "of training that waits for input inside may have computed meanwhile": (
        [enter(0, STEP), amount(900, WAIT, 250), enter(1000, CALLBACKS)],
        (0, 1000), WindowParts(gross_input_wait_ns=250, step_ns=750),
    ),
    "has in a half half of such an amount": (
        [enter(0, STEP), amount(900, WAIT, 250), enter(1000, CALLBACKS)],
        (0, 500), WindowParts(gross_input_wait_ns=125, step_ns=375),
    ),
    "of an execution that fetches more is gross while it goes on": (
        FETCHES_MORE, (100, 900), WindowParts(gross_input_wait_ns=600, step_ns=200),
    ),
    "is so with marks of the device, too": (
        [*FETCHES_MORE, done(50, 0)], (100, 900),
        WindowParts(gross_input_wait_ns=600, step_ns=200),
    ),
    "of a step is the wait for the device, too": (
        [enter(0, STEP), enter(10, SYNC)], (0, 100), WindowParts(step_ns=100),
    ),
    "inside validation is validation, and a wait for input one all the same": (
        [enter(0, WAIT, VALIDATES), enter(300, VALIDATION, VALIDATES),
         enter(500, CALLBACKS, VALIDATES)], (0, 600),
        WindowParts(waits={INPUT_WAIT: 300}, validation_ns=300, validation_input_wait_ns=300),
    ),
}  # fmt: skip
"""Records, a window, and what is in it."""


class TestAPhase:
    @pytest.mark.parametrize("what", PARTS)
    def test_has_the_expected_parts(self, what: str) -> None:
        events, (start_ns, end_ns), parts = PARTS[what]

        assert timeline(*events, until_ns=1000).parts(start_ns, end_ns) == parts

    def test_covers_nothing_after_what_is_known(self) -> None:
        run = timeline(enter(100, WAIT), until_ns=500)

        assert run.parts(0, 1000).uncovered_ns == 600
        assert run.covered_ns(0, 1000) == 400
        assert run.parts(600, 900) == WindowParts(outside_ns=300)


ENDED: dict[str, tuple[list[RingEvent], tuple[int, int], int, int]] = {
    "a wait meanwhile is hidden": (
        [enter(0, STEP), enter(10, WAIT), done(900, 1)], (0, 1000), 100, 890,
    ),
    "the next dispatch ends the exposure": (
        [enter(0, STEP), step(10, 1), enter(10, WAIT), done(100, 1),
         enter(300, STEP), step(310, 2), enter(310, WAIT), done(400, 2)],
        (0, 500), 300, 180,
    ),
    "a step dispatched ahead keeps it hidden": (
        [enter(0, STEP), step(10, 1), enter(10, WAIT),
         enter(20, STEP), step(30, 2), enter(30, WAIT), done(100, 1)],
        (30, 200), 0, 170,
    ),
    "a count that comes late takes back no step": (
        [enter(0, STEP), step(10, 1), enter(20, STEP), step(30, 1), enter(30, WAIT), done(40, 1)],
        (40, 100), 0, 60,
    ),
    "a tag nested in a step does not make it two": (
        [enter(0, STEP), enter(5, CALLBACKS), enter(8, STEP), step(10, 1), enter(10, WAIT),
         done(100, 1)],
        (10, 200), 100, 90,
    ),
    "late records are put in order": (
        [done(100, 1), enter(10, WAIT), enter(0, STEP)], (0, 200), 100, 90,
    ),
}  # fmt: skip
"""Records, a window that ends with the last, and its exposed and its hidden wait."""


class TestMarksOfStepEnds:
    @pytest.mark.parametrize("what", ENDED)
    def test_expose_the_wait_behind_device_work(self, what: str) -> None:
        events, (start_ns, end_ns), exposed_ns, hidden_ns = ENDED[what]

        parts = timeline(*events, until_ns=end_ns).parts(start_ns, end_ns)

        assert parts.waits == {INPUT_WAIT: exposed_ns}
        assert parts.hidden_input_wait_ns == hidden_ns

    @pytest.mark.parametrize("rest", [TrainingPhase.BETWEEN_EPOCHS, TrainingPhase.OTHER])
    def test_give_the_device_no_work_if_a_step_came_to_nothing(self, rest: TrainingPhase) -> None:
        """As one that only found the end of the data, or raised."""
        marks = (
            enter(0, STEP), step(10, 1), done(20, 1),
            enter(30, STEP), enter(40, rest), enter(50, CALLBACKS),
            enter(90, STEP), step(95, 2), done(100, 2),
        )  # fmt: skip

        parts = timeline(*marks, until_ns=100).parts(40, 100)

        is_untagged = rest is TrainingPhase.OTHER
        waits = {} if is_untagged else {cause_of(rest): 10}
        assert parts.waits == {**waits, IdleCause.CALLBACKS: 40}
        assert parts.uncovered_ns == (10 if is_untagged else 0)
        assert parts.step_ns == 10

    @pytest.mark.parametrize("read_as", ["one reading", "one reading each"])
    def test_expose_what_was_before_the_first_step(self, read_as: str) -> None:
        """Whether the first mark is read together with it, or later."""
        marks = (
            enter(0, TrainingPhase.START_UP), enter(20, WAIT), enter(300, STEP), step(310, 1),
            enter(310, WAIT), done(400, 1),
        )  # fmt: skip
        run = PhaseTimeline()
        for read in [marks] if read_as == "one reading" else [(event,) for event in marks]:
            run.extend(RingRecords.of(read), 500)

        parts = run.parts(0, 500)

        assert parts.waits == {INPUT_WAIT: 380}
        assert parts.uncovered_ns == 20
        assert parts.hidden_input_wait_ns == 90


class TestNonsensicalStamps:
    def test_never_expose_more_time_than_there_was(self) -> None:
        events = [enter(10**9, WAIT)]
        for k in range(2_000):
            events += [done(k, 2**64 - 1), enter(k, STEP)]
        run = timeline(*events, enter(10**9 + 1, WAIT), until_ns=2 * 10**9)

        parts = run.parts(0, 2 * 10**9)

        assert sum(parts.waits.values()) <= 2 * 10**9
        assert len(run._drained) <= 2_001
        assert all(a[1] <= b[0] for a, b in pairwise(run._drained))


LATEST_NS = 20_000
histories = st.lists(
    st.builds(
        RingEvent,
        st.sampled_from(RingKind),
        st.integers(0, LATEST_NS),
        st.sampled_from(PHASES),
        st.integers(0, 3) | st.integers(0, 400),
    ),
    min_size=1,
    max_size=80,
)


def as_written(history: list[RingEvent]) -> list[RingEvent]:
    """In order, no two at the same time, and with rising step counts, as by every writer."""
    stamps_ns, steps, written = sorted({event.at_ns for event in history}), 0, []
    for event, at_ns in zip(history, stamps_ns, strict=False):
        if event.kind is RingKind.STEP:
            steps = max(steps, event.value)
            event = event._replace(value=steps)
        written.append(event._replace(at_ns=at_ns))
    return written


class TestAnyHistory:
    @given(
        history=histories,
        cuts=st.lists(st.integers(0, 80), max_size=3),
        window=st.tuples(st.integers(0, LATEST_NS), st.integers(1, LATEST_NS)),
    )
    def test_has_the_same_parts_however_it_is_read(
        self, history: list[RingEvent], cuts: list[int], window: tuple[int, int]
    ) -> None:
        history = as_written(history)
        at_once, in_parts, one_by_one = PhaseTimeline(), PhaseTimeline(), PhaseTimeline()
        at_once.extend(RingRecords.of(history), LATEST_NS)
        bounds = sorted({0, *(cut % len(history) for cut in cuts), len(history)})
        for start, end in pairwise(bounds):
            in_parts.extend(RingRecords.of(history[start:end]), LATEST_NS)
        for event in history:
            one_by_one.extend(RingRecords.of([event]), LATEST_NS)
        start_ns, end_ns = window[0], window[0] + window[1]

        assert at_once.parts(start_ns, end_ns) == in_parts.parts(start_ns, end_ns)
        assert at_once.parts(start_ns, end_ns) == one_by_one.parts(start_ns, end_ns)
        assert at_once.covered_ns(start_ns, end_ns) == one_by_one.covered_ns(start_ns, end_ns)
        at_once.forget_before(start_ns)
        assert at_once.parts(start_ns, end_ns) == one_by_one.parts(start_ns, end_ns)

    @given(history=histories, window=st.tuples(st.integers(0, 9_000), st.integers(1, LATEST_NS)))
    def test_gives_every_nanosecond_of_a_window_once(
        self, history: list[RingEvent], window: tuple[int, int]
    ) -> None:
        run = timeline(*history, until_ns=LATEST_NS)

        parts = run.parts(window[0], window[0] + window[1])

        exposed_ns = sum(parts.waits.values()) + parts.gross_input_wait_ns + parts.uncovered_ns
        assert exposed_ns + parts.validation_ns + parts.step_ns == window[1]
