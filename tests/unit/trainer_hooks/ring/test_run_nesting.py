"""Which run sets the phases of a process, and which phase follows a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gpumon.core.phase import PHASES
from tests.unit.trainer_hooks.ring.ring_contents import CALLBACKS, TRAIN_STEP
from trainer_hooks import phase, timed
from trainer_hooks.ring.process_ring import NestedRun, ProcessRing


class Run:
    """A run under way, until it says otherwise."""

    is_under_way = True

    def is_running(self) -> bool:
        return self.is_under_way


class Turns:
    """The turns of runs in the ring of a process. A run without a reference is gone."""

    def __init__(self, ring: ProcessRing) -> None:
        self.ring = ring

    @property
    def present(self) -> str:
        assert self.ring.writer is not None
        return PHASES[self.ring.writer.present[0]].value

    @property
    def tid(self) -> int | None:
        """The thread whose id the ring contains."""
        assert self.ring.writer is not None
        return self.ring.writer.facts.tid

    def begin(self, run: Run, number: int = TRAIN_STEP) -> NestedRun:
        """The turn of a run that is in a phase."""
        turn = self.ring.begin_run(run)
        assert self.ring.writer is not None
        self.ring.writer.enter(number)
        return turn

    def end(self, turn: NestedRun) -> None:
        self.ring.end_run(turn)

    def run_through(self, run: Run) -> None:
        """One that begins and ends."""
        self.end(self.begin(run))


@pytest.fixture
def turns(own_ring: ProcessRing) -> Turns:
    return Turns(own_ring)


def elsewhere(does: Callable[[], object]) -> None:
    thread = threading.Thread(target=does)
    thread.start()
    thread.join()


class TestAfterATurn:
    def test_surrounding_region_comes_back(self, turns: Turns) -> None:
        with phase("checkpoint"):
            turns.run_through(Run())
            assert turns.present == "checkpoint"

        assert turns.present == "other"

    @pytest.mark.parametrize("raised", [False, True])
    def test_interrupted_run_comes_back_unless_it_raised_unnoticed(
        self, turns: Turns, raised: bool
    ) -> None:
        outer = Run()
        outer_turn = turns.begin(outer, CALLBACKS)
        outer.is_under_way = not raised
        turns.run_through(Run())

        assert turns.present == ("other" if raised else "callbacks")
        turns.end(outer_turn)
        assert turns.present == "other"

    def test_run_that_ended_meanwhile_does_not_come_back(self, turns: Turns) -> None:
        outer, inner = Run(), Run()
        with phase("validation"):
            outer_turn = turns.begin(outer, CALLBACKS)
            inner_turn = turns.begin(inner)
            turns.end(outer_turn)
            assert turns.present == "train_step"
            turns.end(inner_turn)

            assert turns.present == "validation"

    def test_none_of_many_raised_runs_comes_back(self, turns: Turns) -> None:
        raised = [Run() for _ in range(2_000)]
        for run in raised:
            turns.begin(run)
            run.is_under_way = False
        turns.run_through(Run())

        assert turns.present == "other"

    def test_open_region_continues(self, turns: Turns) -> None:
        run = Run()
        turn = turns.begin(run)
        with phase("checkpoint"):
            turns.end(turn)
            assert turns.present == "checkpoint"

        assert turns.present == "other"

    def test_surrounding_regions_may_close_first(self, turns: Turns) -> None:
        run = Run()
        with phase("validation"):
            with phase("checkpoint"):
                turn = turns.begin(run)
            assert turns.present == "validation"
            turns.end(turn)
            assert turns.present == "validation"

        assert turns.present == "other"

    def test_the_ring_records_of_the_thread_that_counts_again(self, turns: Turns) -> None:
        recorded = [turns.tid]

        def on_another_thread() -> None:
            turn = turns.begin(run := Run())
            recorded.extend((turns.tid, threading.get_native_id()))
            turns.end(turn)
            del run

        elsewhere(on_another_thread)

        here = threading.get_native_id()
        assert recorded[1] == recorded[2] != here
        assert (recorded[0], turns.tid) == (here, here)
        assert turns.ring.thread == threading.get_ident()
        assert turns.ring.current_run is None


class TestATurnThatEndsOnAnotherThread:
    def asked(self, does: Callable[[], object]) -> None:
        """Something is done on another thread while this one is in a line of ours."""

        class Asked(list[int]):
            @property
            def length(self) -> None:
                elsewhere(does)

        assert timed(Asked()).length is None

    def test_ends_all_the_same_while_its_own_does_nothing_of_ours(self, turns: Turns) -> None:
        run = Run()
        turn = turns.begin(run)
        elsewhere(lambda: turns.end(turn))

        assert turns.present == "other"
        assert turns.ring.thread == threading.get_ident()

    def test_is_left_to_its_own_where_that_may_be_about_to_write(self, turns: Turns) -> None:
        run, seen = Run(), []
        turn = turns.begin(run)

        def end() -> None:
            turns.end(turn)
            seen.append(turns.present)

        self.asked(end)
        assert seen == ["train_step"]
        assert turns.ring.thread == threading.get_ident()
        with phase("checkpoint"):
            assert turns.present == "checkpoint"
        assert turns.present == "other"


class TestARegionThatItsThreadLeavesDuringARunOnAnother:
    def test_does_not_keep_the_next_region_from_being_recorded(self, turns: Turns) -> None:
        mine, others, saved = Run(), Run(), phase("checkpoint")
        with ThreadPoolExecutor(1) as there:

            def on_the_other(does: Callable[[], Any]) -> Any:
                return there.submit(does).result()

            others_turn = on_the_other(lambda: turns.begin(others))
            on_the_other(saved.__enter__)
            turn = turns.begin(mine)
            on_the_other(lambda: saved.__exit__(None, None, None))
            assert turns.present == "train_step"
            turns.end(turn)
            on_the_other(lambda: turns.end(others_turn))

        with phase("validation"):
            assert turns.present == "validation"
        assert turns.present == "other"
