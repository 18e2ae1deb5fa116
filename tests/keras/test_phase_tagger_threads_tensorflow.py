"""Runs of several threads: each is timed alone, and TensorFlow's classes stay as they were."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.keras.later import builders, keras, on_tensorflow, tf

pytestmark = pytest.mark.keras_tensorflow
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

    def meet(self, other: Meeting) -> None:
        self.arrive()
        other.wait()


def training(fit: Callable[[], object]) -> threading.Thread:
    """A fit under way in a thread of its own."""
    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def several(*layers: Any) -> Any:
    """A model of several steps an execution."""
    return builders.small_model(*layers, steps_per_execution=4)


def traced(once: Callable[[], None]) -> Any:
    """A model that does something while its step is traced, the first time."""
    waiting: list[Callable[[], None]] = []

    class Traced(builders.SleepingCompute):
        def call(self, rows: Any) -> Any:
            if waiting:
                waiting.pop()()
            return super().call(rows)

    layer = Traced(0.0)
    model = several(layer)  # Keras traces shapes meanwhile
    waiting.append(once)
    return model


def fit(model: Any, *callbacks: Any) -> None:
    builders.fit(model, builders.SlowBatches(0.0), *callbacks, builders.tagger(), steps=8, epochs=1)


class TestTwoRunsAtOnce:
    @pytest.fixture(autouse=True)
    def leave_nothing_on_a_class(self) -> Iterator[None]:
        before = methods_of_iterators()
        yield
        assert methods_of_iterators() == before

    def test_are_each_timed_complete_though_one_was_traced_during_the_other(self) -> None:
        """A trace without some of its timers would lose a part of the wait for good."""
        tracing, inner_over = Meeting(), Meeting()
        outer, inner, source = traced(lambda: tracing.meet(inner_over)), several(), SlowSource()

        one = training(lambda: source.train(outer, 16))
        tracing.wait()
        fit(inner)
        inner_over.arrive()
        ended(one)
        before = len(on_tensorflow.gross_waits_ns())
        source.train(outer, 16)

        recorded_ns = on_tensorflow.gross_waits_ns()[before:]
        assert len(recorded_ns) == 4
        assert sum(recorded_ns) >= 0.99 * sum(source.slept_ns[-16:])

    def test_count_no_batch_that_passed_while_the_other_was_recorded(self) -> None:
        """One ring records one run: the one that began last, until it ends."""
        after_two, inner_began, resume, inner_over = Meeting(), Meeting(), Meeting(), Meeting()
        meetings = {
            7: lambda: after_two.meet(inner_began),
            15: lambda: resume.meet(inner_over),
        }
        pauses = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: meetings.get(batch, lambda: None)()
        )
        outer, inner, source = several(), several(), SlowSource()

        one = training(lambda: source.train(outer, 24, pauses))
        after_two.wait()
        before = builders.recorded_steps()
        # Before the first batch of its only epoch it lets some of the other's pass.
        fit(inner, builders.Does(lambda _: inner_began.meet(resume), "on_epoch_begin"))
        after_inner, waits_before = builders.recorded_steps(), len(on_tensorflow.gross_waits_ns())
        inner_over.arrive()
        ended(one)

        assert (before, after_inner, builders.recorded_steps()) == (8, 8 + 8, 8 + 8 + 8)
        slept_ns = sum(source.slept_ns[16:24])  # of the other's eight batches: as much again
        assert (
            0.99 * slept_ns <= sum(on_tensorflow.gross_waits_ns()[waits_before:]) < 1.8 * slept_ns
        )


class SlowSource:
    """Takes 50 ms for each batch, and notes how long it really was."""

    def __init__(self) -> None:
        self.slept_ns: list[int] = []

    def train(self, model: Any, batches: int, *callbacks: Any) -> None:
        known = tf.data.experimental.assert_cardinality(batches)
        data = on_tensorflow.dataset(lambda: self._slow(batches)).apply(known)
        model.fit(data, verbose=0, callbacks=[*callbacks, builders.tagger()])

    def _slow(self, batches: int) -> Iterator[Any]:
        for _ in range(batches):
            began_ns = time.monotonic_ns()
            time.sleep(0.05)
            self.slept_ns.append(time.monotonic_ns() - began_ns)
            yield builders.rows_and_sums(builders.BATCH)
