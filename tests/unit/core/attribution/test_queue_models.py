"""Specification of queue models: how each way of working fits the windows of a loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import sqrt

import pytest

from gpumon.core.attribution.queue_models import Fit, LoopTrace, LoopWindow
from gpumon.core.attribution.span_labels import SUSPENDED_CODE
from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import PHASE_NUMBER, IdleCause, TrainingPhase
from gpumon.core.ring_format.events import RingRecords
from tests.truth.loops.machine import NS_PER_MS, Rank
from tests.unit.core.attribution.builders_bounds import CALLBACKS, OTHER, STEP, SYNC, WAIT

GRAIN_NS = 50 * NS_PER_MS
INPUT_WAIT, WITHIN_STEP = IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP
WAIT_CODE, STEP_CODE = PHASE_NUMBER[WAIT], PHASE_NUMBER[STEP]


def works_in_the_step(rank: Rank) -> None:
    with rank.phase(WAIT):
        rank.work(20)
    with rank.phase(STEP):
        rank.launch(30)
        rank.synchronise()
    rank.step()


def queues_at_entry(rank: Rank) -> None:
    with rank.phase(WAIT):
        rank.work(20)
    with rank.phase(STEP):
        rank.launch(24)
        rank.work(10)
    rank.step()


def queues_at_exit(rank: Rank) -> None:
    with rank.phase(WAIT):
        rank.work(20)
    with rank.phase(STEP):
        rank.work(10)
        rank.launch(24)
    rank.step()


def accumulates(rank: Rank, *, queues_in: int) -> None:
    for batch in range(4):
        with rank.phase(WAIT):
            rank.work(20)
        with rank.phase(STEP):
            if batch == queues_in:
                rank.launch(70)
            rank.work(5)
            if batch == 3:
                rank.step()
    with rank.phase(CALLBACKS):
        rank.work(15)


LOOPS: dict[str, Callable[[Rank], None]] = {
    "spread": works_in_the_step,
    "entry": queues_at_entry,
    "exit": queues_at_exit,
    "first": partial(accumulates, queues_in=0),
    "last": partial(accumulates, queues_in=3),
}
"""By the model that describes each."""


def windows_of(rank: Rank, *, from_ns: int = 10 * NS_PER_MS) -> list[LoopWindow]:
    timeline = PhaseTimeline()
    timeline.extend(RingRecords.of(rank.events), rank.now_ns)
    windows = []
    for start_ns, end_ns, ratio in rank.windows(GRAIN_NS, from_ns):
        spans = timeline.spans(start_ns, end_ns)
        assert spans is not None
        idle_ns, steps_ns = round(GRAIN_NS * (1 - ratio)), timeline.steps_between(start_ns, end_ns)
        windows.append(LoopWindow(start_ns, end_ns, idle_ns, *spans, steps_ns))
    return windows


def trace_of(loop: Callable[[Rank], None], *, times: int = 60) -> tuple[Rank, LoopTrace]:
    rank = Rank(3, jitter=0.02)
    with rank.phase(CALLBACKS):
        rank.work(10)
    for _ in range(times):
        loop(rank)
    return rank, LoopTrace(windows_of(rank), has_own_steps=False, begins_idle=True)


def error_of(fit: Fit) -> float:
    return sqrt(fit.squares / fit.windows)


def entry_error(end_phase: TrainingPhase) -> float:
    """Of a loop with uneven work that waits for the device in a phase of that name."""
    rank = Rank(1, jitter=0.3)
    for _ in range(100):
        with rank.phase(WAIT):
            rank.work(20)
        with rank.phase(STEP):
            rank.launch(30)
        with rank.phase(end_phase):
            rank.synchronise()
        rank.step()
    loop = LoopTrace(windows_of(rank), has_own_steps=False, begins_idle=True)
    (fit,) = loop.fits(["entry"])
    return error_of(fit)


def window(
    at: int, codes: bytes, *, idle_ns: int = 400, bounds_ns: tuple[int, ...] = ()
) -> LoopWindow:
    """A window of 1000 ns; its phases are of one length unless ``bounds_ns`` are given."""
    start_ns, each_ns = 1000 * at, 1000 // len(codes)
    inner_ns = bounds_ns or [start_ns + each_ns * k for k in range(1, len(codes))]
    end_ns = start_ns + 1000
    return LoopWindow(
        start_ns, end_ns, idle_ns, (start_ns, *inner_ns, end_ns), codes, begins=True, steps_ns=()
    )


def trace(*windows: LoopWindow, has_own_steps: bool = False) -> LoopTrace:
    return LoopTrace(windows, has_own_steps=has_own_steps, begins_idle=True)


class TestTheModel:
    @pytest.mark.parametrize("name", LOOPS)
    def test_fits_the_windows_of_its_loop_best_and_gives_each_cause_its_idle_time(
        self, name: str
    ) -> None:
        rank, loop = trace_of(LOOPS[name])
        windows = windows_of(rank)

        fits = {fit.name: fit for fit in loop.fits()}

        accumulated = ["first", "last"] if name in ("first", "last") else []
        assert [*fits] == ["spread", "entry", "exit", *accumulated]
        assert min(fits, key=lambda one: error_of(fits[one])) == name
        assert error_of(fits[name]) < 0.03
        true_ns = rank.idle_ns(windows[0].start_ns, windows[-1].end_ns)
        slack_ns = 0.03 * (windows[-1].end_ns - windows[0].start_ns)
        assert fits[name].idle_ns[INPUT_WAIT] == pytest.approx(true_ns[WAIT], abs=slack_ns)
        assert fits[name].idle_ns[WITHIN_STEP] == pytest.approx(true_ns[STEP], abs=slack_ns)
        idle_ns = sum(one.idle_ns for one in windows)
        for fit in fits.values():
            assert sum(fit.idle_ns.values()) == pytest.approx(idle_ns, abs=fit.missed_ns + 10)
            assert all(0 <= part <= 1 for part in loop.idle_parts(fit).values())

    def test_ends_all_queued_work_at_a_synchronisation(self) -> None:
        synchronised, unknown = (entry_error(SYNC), entry_error(STEP))

        assert synchronised < 0.15 < unknown


class TestAWindow:
    @pytest.mark.parametrize(
        "code",
        [
            PHASE_NUMBER[TrainingPhase.COMPILE],
            PHASE_NUMBER[TrainingPhase.VALIDATION],
            PHASE_NUMBER[TrainingPhase.PREDICT],
            SUSPENDED_CODE,
        ],
        ids=["compile", "validation", "predict", "suspended"],
    )
    def test_is_not_compared_if_the_device_may_do_other_work(self, code: int) -> None:
        usual = bytes([WAIT_CODE, STEP_CODE])

        loop = trace(window(0, usual), window(1, bytes([code, STEP_CODE])), window(2, usual))

        assert loop.fitted == [True, False, True]
        assert loop.fitted_ns == 2000
        assert all(fit.windows <= 2 for fit in loop.fits())


class TestUntaggedCode:
    def test_is_the_step_of_a_run_that_counts_steps_and_tags_none(self) -> None:
        codes = bytes([WAIT_CODE, PHASE_NUMBER[OTHER]])
        windows = [window(at, codes, idle_ns=500) for at in range(4)]

        own, other = trace(*windows, has_own_steps=True), trace(*windows)

        (spread,) = own.fits(["spread"])
        assert (spread.squares, spread.idle_ns[INPUT_WAIT]) == (0, 2000)
        (spread,) = other.fits(["spread"])
        assert spread.squares > 0
