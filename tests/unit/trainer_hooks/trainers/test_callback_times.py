"""The time of callbacks by class: at most sixteen names, the rest together."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.ring_format.facts import encode_facts, parse_facts
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers import callback_times
from trainer_hooks.trainers.callback_times import (
    NO_CALLBACK,
    OTHERS,
    CallbackClasses,
    CallbackTimes,
    EventCallbacks,
    TimedCallbacks,
)
from trainer_hooks.trainers.tagged_run import TaggedRun

SECOND = 1_000_000_000


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets the clock advance by so many nanoseconds."""
    now_ns = [7]
    monkeypatch.setattr(callback_times, "monotonic_ns", lambda: now_ns[0])

    def sleep(ns: int) -> None:
        now_ns[0] += ns

    return sleep


def after_calls(names: list[str], known_ns: dict[str, int] | None = None) -> CallbackTimes:
    """Callbacks of these classes took 1, 2, 3, ... ns."""
    times, now_ns = CallbackTimes(known_ns), 0
    times.begin(now_ns)
    for spent_ns, name in enumerate(names, 1):
        now_ns += spent_ns
        times.returned(times.slot_of(name), now_ns)
    return times


class TestTheTimes:
    def test_are_those_between_one_return_and_the_next(self) -> None:
        times = CallbackTimes({"TensorBoard": 70})
        first, second = times.slot_of("TensorBoard"), times.slot_of("CSVLogger")
        times.slot_of("Idle")
        times.begin(100)
        times.returned(first, 130)
        times.returned(second, 135)
        times.begin(1_000)
        times.returned(first, 1_001)

        assert times.spent_ns == {"TensorBoard": 101, "CSVLogger": 5}

    def test_nested_run_is_counted_once(self, writer: RingWriter) -> None:
        outer = CallbackTimes()
        outer.begin(0)
        outer.returned(outer.slot_of("Outer"), 5)
        outer.write_facts(writer)
        inner = CallbackTimes(writer.facts.callback_ns)
        inner.begin(5)
        inner.returned(inner.slot_of("Inner"), 25)
        inner.write_facts(writer)
        outer.returned(outer.slot_of("Outer"), 30)
        for _ in range(2):
            outer.write_facts(writer)

        assert writer.facts.callback_ns == {"Outer": 30, "Inner": 20}

    def test_classes_beyond_the_sixteenth_are_summed_over_all_runs(self) -> None:
        known: dict[str, int] = {}
        for run in range(5):
            known = after_calls([f"Callback{run}{at}" for at in range(30)], known).spent_ns

        assert len(known) == 17
        assert known[OTHERS] > 0
        assert sum(known.values()) == 5 * sum(range(1, 31))

    def test_have_printable_names_in_the_ring(self, writer: RingWriter) -> None:
        names = [f"{number}\x1b[31m\n\N{GRINNING FACE}" * 50 for number in range(20)]
        spent_ns = after_calls(names).spent_ns

        raw = encode_facts(replace(writer.facts, callback_ns=spent_ns))

        assert len(parse_facts(raw).callback_ns) == 17
        assert all(name.isprintable() for name in parse_facts(raw).callback_ns)


class Upload:
    """Does something after a step."""

    def on_step_end(self) -> None: ...


class Idle:
    """Does nothing anywhere."""


class Empty:
    """A base class of callbacks."""

    def on_step_end(self) -> None: ...


class Inherits(Empty):
    """Has the empty methods only."""


class TestACallbackInsideAnother:
    @pytest.mark.parametrize(
        ("inner", "spent"),
        [(Idle(), {"Upload": 5, "Idle": 60}), (None, {"Upload": 5})],
        ids=["a callback", "something else"],
    )
    def test_has_its_own_time(
        self,
        writer: RingWriter,
        sleep: Callable[[int], None],
        inner: object,
        spent: dict[str, int],
    ) -> None:
        classes = CallbackClasses(writer)
        classes.begin(classes.slot_of(Upload()))
        sleep(3)
        classes.begin(NO_CALLBACK if inner is None else classes.slot_of(inner))
        sleep(60)
        classes.end()
        sleep(2)
        classes.end()
        classes.end()  # once too often
        classes.write_facts()

        assert writer.facts.callback_ns == spent


class TestTheRing:
    def test_is_written_at_most_once_a_second(
        self, writer: RingWriter, sleep: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[Any] = []
        monkeypatch.setattr(writer, "write_facts", written.append)
        classes = CallbackClasses(writer)
        slot = classes.slot_of(Upload())
        sleep(SECOND)
        for _ in range(100):
            classes.begin(slot)
            sleep(SECOND // 40)
            classes.end()

        assert 2 <= len(written) <= 3


class TestAListOfCallbacks:
    def test_times_one_round_and_otherwise_is_a_list(
        self, writer: RingWriter, sleep: Callable[[int], None]
    ) -> None:
        classes, before = CallbackClasses(writer), [Upload(), Idle()]
        timed = TimedCallbacks(before, {Upload: classes.slot_of(before[0])}, classes)

        assert timed == before
        for _ in timed:
            sleep(20)
        assert list(timed) == before
        classes.write_facts()
        assert writer.facts.callback_ns == {"Upload": 20}
        assert type(pickle.loads(pickle.dumps(timed))) is list

    def test_gives_back_the_original_list_with_what_changed(self, writer: RingWriter) -> None:
        before: list[object] = [Upload()]
        timed = TimedCallbacks(before, {}, CallbackClasses(writer))
        timed.append(idle := Idle())

        assert timed.give_back() is before
        assert before[1:] == [idle]


class TestTheCallbacksOfAnEvent:
    def slots(self, *callbacks: object, event: str = "on_step_end", untimed: Any = ()) -> Any:
        return EventCallbacks(Empty, untimed).of(event, callbacks, lambda _: 7)

    def test_are_those_that_do_something_there(self) -> None:
        own = Inherits()
        own.on_step_end = lambda: None  # type: ignore[method-assign]

        assert self.slots(Inherits(), Upload()) == {Upload: 7}
        assert self.slots(own) == {Inherits: 7}
        assert self.slots(Inherits(), Upload(), event="on_log") is None

    def test_are_not_timed_where_they_are_the_trainers_own(self) -> None:
        assert self.slots(Upload(), untimed=[Upload]) == {}


class Run(TaggedRun):
    """Tags nothing."""

    def __init__(self, ring: ProcessRing, writer: RingWriter) -> None:
        super().__init__(ring, writer)
        self._begin_run()

    def _leave(self) -> None: ...


def test_a_run_gives_its_thread_back_to_the_one_before(writer: RingWriter) -> None:
    ring = ProcessRing(writer)
    ring.thread = 12345
    run = Run(ring, writer)

    assert run.is_here
    run.stop()
    run.stop()
    assert (ring.thread, run.is_here) == (12345, False)
