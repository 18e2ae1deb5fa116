"""Between two epochs of unknown length, ``PhaseTagger`` on TensorFlow calls nothing a step."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.core.join.timeline import PhaseTimeline
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring.events import RingKind, RingRecords
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t

if TYPE_CHECKING:
    from gpumon.core.join.idle_sharing import WindowParts

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
FOUR_EXECUTIONS, FOUR_AND_A_HALF = 16, 18  # batches
PAUSE_S = 0.25


class Source:
    """Batches of an epoch of which nobody says how long it is; its end takes a while, too."""

    def __init__(self, batches: int, end_s: float = 0.0) -> None:
        self.slow = b.SlowBatches(0.002)
        self.ends_ns: list[tuple[int, int]] = []
        self._batches = batches
        self._end_s = end_s

    def batches(self) -> Any:
        yield from islice(self.slow, self._batches)
        began_ns = time.monotonic_ns()
        time.sleep(self._end_s)
        self.ends_ns.append((began_ns, time.monotonic_ns()))

    def dataset(self) -> Any:
        return t.dataset(self.batches)


def pause() -> Any:
    """Sleeps at the end of an epoch, and notes when it did."""
    import keras

    class Pause(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.spans_ns: list[tuple[int, int]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            began_ns = time.monotonic_ns()
            time.sleep(PAUSE_S)
            self.spans_ns.append((began_ns, time.monotonic_ns()))

    return Pause()


def told_of(spans_ns: list[tuple[int, int]]) -> list[WindowParts]:
    """What the daemon makes of the ring in each of those stretches."""
    timeline = PhaseTimeline()
    timeline.extend(RingRecords.of(b.records()), time.monotonic_ns())
    return [timeline.parts(*span) for span in spans_ns]


def length_ns(span: tuple[int, int]) -> int:
    return span[1] - span[0]


@pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
@pytest.mark.parametrize("steps_per_execution", [1, 4])
class TestBetweenTwoEpochsOfUnknownLength:
    @pytest.mark.measured
    def test_a_callback_is_callbacks(self, steps_per_execution: int, *, eagerly: bool) -> None:
        model = b.small_model(steps_per_execution=steps_per_execution, run_eagerly=eagerly)
        sleeper = pause()

        model.fit(
            Source(FOUR_AND_A_HALF).dataset(), epochs=3, verbose=0, callbacks=[sleeper, b.tagger()]
        )

        for span, parts in zip(sleeper.spans_ns, told_of(sleeper.spans_ns), strict=True):
            assert parts.waits == {IdleCause.CALLBACKS: length_ns(span)}
            assert (parts.step_ns, parts.gross_input_wait_ns) == (0, 0)

    @pytest.mark.measured
    def test_a_validation_is_validation(self, steps_per_execution: int, *, eagerly: bool) -> None:
        model = b.small_model(
            b.SleepingCompute(0.01), steps_per_execution=steps_per_execution, run_eagerly=eagerly
        )
        edges = b.Edges()

        model.fit(
            Source(FOUR_AND_A_HALF).dataset(),
            epochs=2,
            verbose=0,
            validation_data=b.rows_and_sums(8 * b.BATCH),
            validation_batch_size=b.BATCH,
            callbacks=[edges, b.tagger()],
        )

        for span, parts in zip(edges.validations_ns, told_of(edges.validations_ns), strict=True):
            assert length_ns(span) >= 8 * 10 * MS
            assert parts.step_ns == 0
            assert parts.gross_input_wait_ns == 0

    @pytest.mark.measured
    def test_the_wait_for_the_end_of_the_data_is_input_wait_and_no_step(
        self, steps_per_execution: int, *, eagerly: bool
    ) -> None:
        model = b.small_model(steps_per_execution=steps_per_execution, run_eagerly=eagerly)
        source = Source(FOUR_EXECUTIONS, end_s=0.2)

        model.fit(source.dataset(), epochs=2, verbose=0, callbacks=[b.tagger()])
        waits_ns = [
            parts.waits.get(IdleCause.INPUT_WAIT, 0) + parts.gross_input_wait_ns
            for parts in told_of(source.ends_ns)
        ]

        assert len(waits_ns) == 2
        for waited_ns, span in zip(waits_ns, source.ends_ns, strict=True):
            # What is told inside a step is spread over all of it, which is a little longer.
            assert waited_ns == t.within_a_tenth(length_ns(span))


class TestAnEpochThatEndedInNoBatch:
    @pytest.mark.measured
    def test_leaves_its_wait_to_no_step_of_the_next(self) -> None:
        model = b.small_model(b.SleepingCompute(0.02), steps_per_execution=4)
        source = Source(FOUR_EXECUTIONS, end_s=0.4)

        model.fit(source.dataset(), epochs=3, verbose=0, callbacks=[b.tagger()])

        slept_ns = sum(length_ns(span) for span in source.slow.spans_ns)
        told_ns = [
            e.value
            for e in b.records()
            if e.kind is RingKind.AMOUNT and e.phase is TrainingPhase.INPUT_WAIT
        ]
        of_ends_ns = [ns for ns in told_ns if ns >= 400 * MS]
        assert len(of_ends_ns) == 3
        assert sum(told_ns) - sum(of_ends_ns) == pytest.approx(slept_ns, abs=200 * MS)
