"""Specification of whose turn it is to say what a process does, and of what follows a turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase
from trainer_hooks import phase, timed
from trainer_hooks.ring import process_ring
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.run_nesting import NestedRun

TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
CALLBACKS = PHASE_NUMBER[TrainingPhase.CALLBACKS]


class Run:
    """A run under way, until it says otherwise."""

    is_under_way = True

    def goes_on(self) -> bool:
        return self.is_under_way


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRing:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(process_ring._Slot, "ring", None)
    return process_ring.process_ring()


def present(ring: ProcessRing) -> str:
    assert ring.writer is not None
    return PHASES[ring.writer.present[0]].value


def begun(ring: ProcessRing, run: Run, number: int = TRAIN_STEP) -> NestedRun:
    """The turn of a run that is in a phase."""
    turn = ring.begin_run(run)
    assert ring.writer is not None
    ring.writer.enter(number)
    return turn


def elsewhere(does: Callable[[], object]) -> None:
    thread = threading.Thread(target=does)
    thread.start()
    thread.join()


class TestAfterATurn:
    def test_comes_other_where_nobody_else_says_anything(self, ring: ProcessRing) -> None:
        run = Run()
        ring.end_run(begun(ring, run))

        assert present(ring) == "other"

    def test_comes_the_region_around_it(self, ring: ProcessRing) -> None:
        run = Run()
        with phase("checkpoint"):
            ring.end_run(begun(ring, run))
            assert present(ring) == "checkpoint"

        assert present(ring) == "other"

    def test_comes_the_run_that_it_interrupted(self, ring: ProcessRing) -> None:
        outer, inner = Run(), Run()
        outer_turn = begun(ring, outer, CALLBACKS)
        ring.end_run(begun(ring, inner))

        assert present(ring) == "callbacks"
        ring.end_run(outer_turn)
        assert present(ring) == "other"

    def test_comes_no_run_that_raised_and_did_not_say_so(self, ring: ProcessRing) -> None:
        outer, inner = Run(), Run()
        outer_turn = begun(ring, outer)
        outer.is_under_way = False
        ring.end_run(begun(ring, inner))

        assert present(ring) == "other"
        ring.end_run(outer_turn)
        assert present(ring) == "other"

    def test_comes_no_run_that_ended_meanwhile(self, ring: ProcessRing) -> None:
        outer, inner = Run(), Run()
        with phase("validation"):
            outer_turn = begun(ring, outer, CALLBACKS)
            inner_turn = begun(ring, inner)
            ring.end_run(outer_turn)
            assert present(ring) == "train_step"
            ring.end_run(inner_turn)

            assert present(ring) == "validation"

    def test_comes_none_of_the_many_runs_that_raised_and_whose_errors_are_kept(
        self, ring: ProcessRing
    ) -> None:
        raised = [Run() for _ in range(2_000)]
        for run in raised:
            ring.begin_run(run)
            run.is_under_way = False
        last = Run()
        ring.end_run(begun(ring, last))

        assert present(ring) == "other"

    def test_comes_the_rest_of_a_region_that_was_opened_in_it(self, ring: ProcessRing) -> None:
        run = Run()
        turn = begun(ring, run)
        with phase("checkpoint"):
            ring.end_run(turn)
            assert present(ring) == "checkpoint"

        assert present(ring) == "other"

    def test_comes_what_comes_after_the_regions_around_it_where_those_closed_first(
        self, ring: ProcessRing
    ) -> None:
        run = Run()
        with phase("validation"):
            with phase("checkpoint"):
                turn = begun(ring, run)
            assert present(ring) == "validation"
            ring.end_run(turn)
            assert present(ring) == "validation"

        assert present(ring) == "other"

    def test_comes_other_where_the_region_around_two_runs_closed_first(
        self, ring: ProcessRing
    ) -> None:
        outer, inner = Run(), Run()
        with phase("validation"):
            outer_turn = begun(ring, outer, CALLBACKS)
            inner_turn = begun(ring, inner)
        ring.end_run(inner_turn)
        ring.end_run(outer_turn)

        assert present(ring) == "other"

    def test_the_same_thread_counts_as_before(self, ring: ProcessRing) -> None:
        run = Run()
        elsewhere(lambda: ring.end_run(begun(ring, run)))

        assert ring.thread == threading.get_ident()
        assert ring.innermost is None


class TestATurnThatEndsOnAnotherThread:
    def test_ends_all_the_same_while_its_own_does_nothing_of_ours(self, ring: ProcessRing) -> None:
        run = Run()
        turn = begun(ring, run)
        elsewhere(lambda: ring.end_run(turn))

        assert present(ring) == "other"
        assert ring.thread == threading.get_ident()

    def test_is_left_to_its_own_where_that_may_be_about_to_write(self, ring: ProcessRing) -> None:
        run = Run()
        turn = begun(ring, run)

        class Asked(list[int]):
            @property
            def length(self) -> str:  # asked through a line of ours
                elsewhere(lambda: ring.end_run(turn))
                return present(ring)

        assert timed(Asked()).length == "train_step"
        assert ring.thread == threading.get_ident()
        with phase("checkpoint"):
            assert present(ring) == "checkpoint"
        assert present(ring) == "other"

    def test_and_was_left_to_its_own_is_over_with_the_region_around_it(
        self, ring: ProcessRing
    ) -> None:
        run = Run()

        class Asked(list[int]):
            @property
            def length(self) -> int:
                elsewhere(lambda: ring.end_run(turn))
                return 0

        with phase("validation"):
            turn = begun(ring, run)
            assert timed(Asked()).length == 0

        assert present(ring) == "other"
        assert ring.innermost is None

    def test_of_a_run_that_nobody_keeps_is_over(self, ring: ProcessRing) -> None:
        begun(ring, Run(), CALLBACKS)  # gone at once
        run = Run()
        ring.end_run(begun(ring, run))

        assert present(ring) == "other"


class TestARegionThatItsThreadLeavesDuringARunOnAnother:
    def test_does_not_keep_the_word_from_whoever_is_next(self, ring: ProcessRing) -> None:
        mine, others, saved = Run(), Run(), phase("checkpoint")
        with ThreadPoolExecutor(1) as there:

            def on_the_other(does: Callable[[], Any]) -> Any:
                return there.submit(does).result()

            others_turn = on_the_other(lambda: begun(ring, others))
            on_the_other(saved.__enter__)
            turn = begun(ring, mine)
            on_the_other(lambda: saved.__exit__(None, None, None))
            assert present(ring) == "train_step"
            ring.end_run(turn)
            on_the_other(lambda: ring.end_run(others_turn))

        with phase("validation"):
            assert present(ring) == "validation"
        assert present(ring) == "other"
