"""Trainings of several threads: each is timed alone, and TensorFlow's classes stay whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
PATIENCE_S = 60.0


def methods_of_iterators() -> dict[str, Any]:
    """Everything on the class of iterators that ``fit`` hands to a step."""
    from tensorflow.python.data.ops.iterator_ops import OwnedIterator

    return dict(vars(OwnedIterator))


class Meeting:
    """Where one thread says that it is there, and another waits for that."""

    def __init__(self) -> None:
        self._there = threading.Event()

    def arrive(self) -> None:
        self._there.set()

    def wait(self) -> None:
        assert self._there.wait(PATIENCE_S), "the other thread never came"


def training(fit: Callable[[], object]) -> threading.Thread:
    """A fit under way in a thread of its own."""
    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def at_the_first_epoch(call: Callable[[], None]) -> Any:
    """A callback that calls something before the first batch."""
    import keras

    class AtTheFirstEpoch(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 0:
                call()

    return AtTheFirstEpoch()


def at_the_end_of(calls: dict[int, Callable[[], None]]) -> Any:
    """A callback that calls something at the end of given batches."""
    import keras

    class AtTheEnd(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch in calls:
                calls[batch]()

    return AtTheEnd()


def computing(once: Callable[[], None]) -> Any:
    """A layer that does something inside the compiled program, the first time."""
    waiting = [once]

    class Computing(b.SleepingCompute):
        def _sleep(self, values: Any) -> Any:
            if waiting:
                waiting.pop()()
            return super()._sleep(values)

    return Computing(0.0)


def traced(once: Callable[[], None]) -> Any:
    """A model that does something while its step is traced, the first time."""
    waiting: list[Callable[[], None]] = []

    class Traced(b.SleepingCompute):
        def call(self, rows: Any) -> Any:
            if waiting:
                waiting.pop()()
            return super().call(rows)

    layer = Traced(0.0)
    model = b.small_model(layer, steps_per_execution=4)  # Keras traces shapes meanwhile
    waiting.append(once)
    return model


class TestTwoTrainingsAtOnce:
    def test_that_overlap_leave_nothing_on_a_class(self) -> None:
        """The one that began first ends first, in the middle of a step of the other."""
        whole = methods_of_iterators()
        in_a_step, other_began, first_over = Meeting(), Meeting(), Meeting()

        def meet() -> None:
            in_a_step.arrive()
            other_began.wait()

        def wait_for_the_first() -> None:
            other_began.arrive()
            first_over.wait()

        first = b.small_model(computing(meet), steps_per_execution=4)
        second = b.small_model(computing(wait_for_the_first), steps_per_execution=4)

        def fit_first() -> None:
            b.fit(first, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1)
            first_over.arrive()

        one = training(fit_first)
        in_a_step.wait()
        other = training(lambda: b.fit(second, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1))
        ended(one, other)

        assert methods_of_iterators() == whole

    def test_of_which_one_lies_within_a_step_of_the_other_leave_nothing_on_a_class(self) -> None:
        whole = methods_of_iterators()
        in_a_step, inner_over = Meeting(), Meeting()

        def meet() -> None:
            in_a_step.arrive()
            inner_over.wait()

        outer = b.small_model(computing(meet), steps_per_execution=4)
        inner = b.small_model(steps_per_execution=4)
        one = training(lambda: b.fit(outer, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1))
        in_a_step.wait()
        b.fit(inner, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1)
        inner_over.arrive()
        ended(one)

        assert methods_of_iterators() == whole

    @pytest.mark.measured
    @pytest.mark.alone  # it compares waits with sleeps
    def test_are_each_timed_whole_though_one_was_traced_during_the_other(self) -> None:
        """A trace without some of its timers would tell a part of the wait for ever."""
        tracing, inner_over = Meeting(), Meeting()

        def meet() -> None:
            tracing.arrive()
            inner_over.wait()

        outer, inner, source = traced(meet), b.small_model(steps_per_execution=4), SlowSource()
        one = training(lambda: outer.fit(source.dataset(16), verbose=0, callbacks=[b.tagger()]))
        tracing.wait()
        b.fit(inner, b.SlowBatches(0.0), b.tagger(), steps=8, epochs=1)
        inner_over.arrive()
        ended(one)
        before = len(t.gross_waits_told_ns())
        outer.fit(source.dataset(16), verbose=0, callbacks=[b.tagger()])

        told_ns = t.gross_waits_told_ns()[before:]
        assert len(told_ns) == 4
        assert sum(told_ns) == pytest.approx(sum(source.slept_ns[-16:]), rel=0.10)

    @pytest.mark.measured
    @pytest.mark.alone  # it compares waits with sleeps
    def test_count_no_batch_that_passed_while_the_other_had_the_word(self) -> None:
        """One ring, one voice: the one that began last has it, until it ends."""
        after_two, inner_began, resume, inner_over = Meeting(), Meeting(), Meeting(), Meeting()

        def hand_over() -> None:
            after_two.arrive()
            inner_began.wait()

        def give_back() -> None:
            resume.arrive()
            inner_over.wait()

        def let_it_pass() -> None:
            inner_began.arrive()
            resume.wait()

        source = SlowSource()
        outer = b.small_model(steps_per_execution=4)
        inner = b.small_model(steps_per_execution=4)
        told: dict[str, Any] = {}
        pauses = at_the_end_of({7: hand_over, 15: give_back})
        one = training(
            lambda: outer.fit(source.dataset(24), verbose=0, callbacks=[pauses, b.tagger()])
        )
        after_two.wait()
        told["before"] = steps_told()
        b.fit(
            inner,
            b.SlowBatches(0.0),
            at_the_first_epoch(let_it_pass),
            b.tagger(),
            steps=8,
            epochs=1,
        )
        told["inner"] = steps_told()
        waits_before = len(t.gross_waits_told_ns())
        inner_over.arrive()
        ended(one)

        assert told["before"] == 8
        assert told["inner"] == 8 + 8
        assert steps_told() == 8 + 8 + 8
        slept_ns = sum(source.slept_ns[16:24])
        assert sum(t.gross_waits_told_ns()[waits_before:]) == pytest.approx(slept_ns, rel=0.10)


class SlowSource:
    """Takes 50 ms for each batch, and notes how long it really was."""

    def __init__(self) -> None:
        self.slept_ns: list[int] = []

    def dataset(self, batches: int) -> Any:
        import tensorflow as tf

        rows, sums = b.rows_and_sums(b.BATCH)

        def slow() -> Any:
            for _ in range(batches):
                began_ns = time.monotonic_ns()
                time.sleep(0.05)
                self.slept_ns.append(time.monotonic_ns() - began_ns)
                yield rows, sums

        known = tf.data.experimental.assert_cardinality(batches)
        return t.dataset(slow).apply(known)


def steps_told() -> int:
    return [e.value for e in b.records() if e.kind is RingKind.STEP][-1]
