"""``train_on_batch`` in a callback, inside ``fit`` on TensorFlow, is no step of that ``fit``."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.callback_methods import WHILE_TRAINING
from tests.keras.later import b

pytestmark = pytest.mark.keras_tensorflow
STEPS, EPOCHS, COMPUTE_S = 8, 2, 0.02


def training_aside(*methods: str) -> Any:
    """A callback that calls ``train_on_batch`` in those methods, and notes how long it took."""
    import keras

    rows, sums = b.rows_and_sums(5)

    class TrainAside(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.spans_ns: list[tuple[int, int]] = []
            for method in methods:
                setattr(self, method, self._train)

        def _train(self, *_: object, **__: object) -> None:
            began_ns = time.monotonic_ns()
            self.model.train_on_batch(rows, sums)
            self.spans_ns.append((began_ns, time.monotonic_ns()))

    return TrainAside()


def fitted(steps_per_execution: int, *, eagerly: bool, aside: Any) -> Any:
    """A training on one slow step after the other, with batches that are ready."""
    model = b.small_model(
        b.SleepingCompute(COMPUTE_S), steps_per_execution=steps_per_execution, run_eagerly=eagerly
    )
    model.fit(
        *b.rows_and_sums(STEPS * b.BATCH),
        batch_size=b.BATCH,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[b.tagger(), aside],  # before its own, a tagger tags nothing
    )
    return model


def values_of(kind: RingKind) -> list[int]:
    return [event.value for event in b.records() if event.kind is kind]


def phases_within(span: tuple[int, int]) -> set[tuple[TrainingPhase, int]]:
    """Phases and modes that any moment of a stretch was told to be in."""
    entered = [event for event in b.records() if event.kind is RingKind.ENTER]
    return {
        (event.phase, event.value)
        for event, after in pairwise(entered)
        if event.at_ns < span[1] and after.at_ns > span[0]
    }


@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("steps_per_execution", [1, 4])
class TestTrainingOnABatchInACallback:
    def test_is_no_step_and_no_sample_of_the_fit(
        self, steps_per_execution: int, *, eagerly: bool
    ) -> None:
        aside = training_aside(*WHILE_TRAINING)

        model = fitted(steps_per_execution, eagerly=eagerly, aside=aside)

        calls, executions = len(aside.spans_ns), EPOCHS * STEPS // steps_per_execution
        assert calls == 1 + 2 * EPOCHS + 2 * executions
        assert int(model.optimizer.iterations) == EPOCHS * STEPS + calls
        assert values_of(RingKind.STEP)[-1] == EPOCHS * STEPS
        assert values_of(RingKind.SAMPLES)[-1] == EPOCHS * STEPS * b.BATCH
        each = 1 if eagerly else steps_per_execution  # what is compiled is done all at once
        assert values_of(RingKind.DEVICE_DONE) == list(range(each, EPOCHS * STEPS + 1, each))

    @pytest.mark.measured
    def test_is_callbacks_from_its_beginning_to_its_end(
        self, steps_per_execution: int, *, eagerly: bool
    ) -> None:
        aside = training_aside(*WHILE_TRAINING)

        fitted(steps_per_execution, eagerly=eagerly, aside=aside)

        told = [phases_within(span) for span in aside.spans_ns]
        assert told == [{(TrainingPhase.CALLBACKS, TrainingMode.TRAIN)}] * len(told)
        spent_ns = sum(end - start for start, end in aside.spans_ns)
        assert b.phase_ns()["callbacks"] == pytest.approx(spent_ns, rel=0.15)
        assert b.phase_ns()["input_wait"] < spent_ns / 4
