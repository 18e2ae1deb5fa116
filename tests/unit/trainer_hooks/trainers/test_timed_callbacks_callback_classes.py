"""Specification of adding up callbacks by class, and of saying so in the ring."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.ring_format.events import RunFacts
from trainer_hooks.ring.mapped_file import find_ring_folder, make_ring
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.ring.run_facts import read_run_facts
from trainer_hooks.trainers.callback_times import (
    NO_CALLBACK,
    CallbackClasses,
    EventCallbacks,
    TimedCallbacks,
)
from trainer_hooks.trainers.tagged_run import TaggedRun

MS = 1_000_000


class NotedWriter(RingWriter):
    """Counts how often the first page is written anew."""

    times = 0

    def write_facts(self, facts: RunFacts) -> None:
        self.times += 1
        super().write_facts(facts)


@pytest.fixture
def pen(tmp_path: Path) -> NotedWriter:
    facts = read_run_facts(started_ns=time.monotonic_ns())
    folder = find_ring_folder({"GPUMON_RUNTIME_DIR": str(tmp_path)}, os.geteuid())
    return NotedWriter(make_ring(folder, facts, wall_ns=0), facts)


class Upload:
    """Does something after a step."""

    def on_step_end(self) -> None:
        time.sleep(0.02)


class Idle:
    """Does nothing anywhere."""


class Empty:
    """What a callback is that does nothing."""

    def on_step_end(self) -> None: ...


class Unheard(Empty):
    """Has the empty methods only."""


class TestACallbackInsideAnother:
    def test_has_its_own_time_and_the_outer_one_the_rest(self, pen: NotedWriter) -> None:
        classes = CallbackClasses(pen)
        outer, inner = classes.slot_of(Upload()), classes.slot_of(Idle())
        began_ns = time.monotonic_ns()
        classes.begin(outer)
        time.sleep(0.02)
        classes.begin(inner)
        time.sleep(0.06)
        classes.end()
        classes.end()
        whole_ns = time.monotonic_ns() - began_ns
        classes.write_facts()

        spent_ns = pen.facts.callback_ns
        assert spent_ns["Idle"] >= 60 * MS
        assert spent_ns["Upload"] >= 20 * MS
        assert spent_ns["Idle"] + spent_ns["Upload"] <= whole_ns

    def test_is_no_ones_where_it_is_no_callback(self, pen: NotedWriter) -> None:
        classes = CallbackClasses(pen)
        began_ns = time.monotonic_ns()
        classes.begin(classes.slot_of(Upload()))
        classes.begin(NO_CALLBACK)
        time.sleep(0.06)
        classes.end()
        classes.end()
        whole_ns = time.monotonic_ns() - began_ns
        classes.write_facts()

        assert pen.facts.callback_ns.get("Upload", 0) <= whole_ns - 60 * MS

    def test_may_end_once_too_often(self, pen: NotedWriter) -> None:
        CallbackClasses(pen).end()

        assert pen.facts.callback_ns == {}


class TestTheRing:
    def test_is_recorded_at_most_once_a_second(self, pen: NotedWriter) -> None:
        classes = CallbackClasses(pen)
        slot = classes.slot_of(Upload())
        for _ in range(1000):
            classes.begin(slot)
            classes.end()

        assert pen.times <= 2

    def test_is_recorded_nothing_that_it_knows(self, pen: NotedWriter) -> None:
        pen.write_facts(replace(pen.facts, callback_ns={"Upload": 5}))
        CallbackClasses(pen).write_facts()

        assert pen.times == 1


class TestAListOfCallbacks:
    def test_times_one_round_and_is_a_list_otherwise(self, pen: NotedWriter) -> None:
        classes, before = CallbackClasses(pen), [Upload(), Idle()]
        timed = TimedCallbacks(before, {Upload: classes.slot_of(before[0])}, classes)

        assert timed == before
        for callback in timed:
            getattr(callback, "on_step_end", lambda: None)()
        assert list(timed) == before
        classes.write_facts()
        assert pen.facts.callback_ns["Upload"] >= 20 * MS
        assert set(pen.facts.callback_ns) == {"Upload"}
        assert type(pickle.loads(pickle.dumps(timed))) is list

    def test_gives_back_the_list_it_was_made_from_with_what_changed(self, pen: NotedWriter) -> None:
        before: list[object] = [Upload()]
        timed = TimedCallbacks(before, {}, CallbackClasses(pen))
        timed.append(idle := Idle())

        assert timed.give_back() is before
        assert before[1:] == [idle]


class TestWhoReceivesOfAnEvent:
    def slot_of(self, callback: object) -> int:
        return 7

    def test_are_those_that_do_something_there(self) -> None:
        handler = EventCallbacks(Empty, ())

        assert handler.of("on_step_end", [Unheard(), Upload()], self.slot_of) == {Upload: 7}
        assert handler.of("on_log", [Unheard(), Upload()], self.slot_of) is None

    def test_are_those_too_that_were_given_a_method_of_their_own(self) -> None:
        own = Unheard()
        own.on_step_end = lambda: None  # type: ignore[method-assign]

        assert EventCallbacks(Empty, ()).of("on_step_end", [own], self.slot_of) == {Unheard: 7}

    def test_are_not_timed_where_they_are_the_trainers_own(self) -> None:
        assert EventCallbacks(Empty, (Upload,)).of("on_step_end", [Upload()], self.slot_of) == {}


class Run(TaggedRun):
    """Tags nothing."""

    def __init__(self, ring: ProcessRing, pen: NotedWriter) -> None:
        super().__init__(ring, pen)
        self._begin_run()

    def _leave(self) -> None: ...


class TestARun:
    def test_gives_its_thread_back_to_whoever_counted_before(self, pen: NotedWriter) -> None:
        ring = ProcessRing(pen)
        ring.thread = 12345
        run = Run(ring, pen)

        assert run.is_here
        run.stop()
        run.stop()
        assert (ring.thread, run.is_here) == (12345, False)
