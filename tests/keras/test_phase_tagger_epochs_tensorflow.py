"""Between two epochs of unknown length, ``PhaseTagger`` on TensorFlow calls nothing a step."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t
from tests.needs import in_make_truth

pytestmark = [pytest.mark.keras_tensorflow, pytest.mark.measured]
MS = 1_000_000
FOUR_EXECUTIONS, FOUR_AND_A_HALF = 16, 18  # batches


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

    def fit(self, model: Any, *callbacks: Any, **settings: Any) -> None:
        words = {"verbose": 0, "callbacks": [*callbacks, b.tagger()], **settings}
        model.fit(t.dataset(self.batches), **words)


@pytest.mark.parametrize(
    ("steps_per_execution", "eagerly"),
    [(1, False), (4, False), pytest.param(1, True, marks=in_make_truth), (4, True)],
)
class TestBetweenTwoEpochsOfUnknownLength:
    @pytest.fixture
    def compiled(self, steps_per_execution: int, eagerly: bool) -> dict[str, Any]:
        return {"steps_per_execution": steps_per_execution, "run_eagerly": eagerly}

    def test_a_callback_is_callbacks_and_a_validation_no_step(self, compiled: Any) -> None:
        pause, edges = b.SleepingCallback("on_epoch_end", seconds=0.25), b.Edges()
        model, data = b.small_model(b.SleepingCompute(0.01), **compiled), b.rows_and_sums(128)

        validated = {"validation_data": data, "validation_batch_size": b.BATCH}
        Source(FOUR_AND_A_HALF).fit(model, pause, edges, epochs=3, **validated)

        for (start, end), parts in zip(pause.spans_ns, b.recorded_in(pause.spans_ns), strict=True):
            assert parts.waits == {IdleCause.CALLBACKS: end - start}
        assert min(b.lengths_ns(edges.validations_ns)) >= 8 * 10 * MS
        for parts in b.recorded_in([*pause.spans_ns, *edges.validations_ns]):
            assert (parts.step_ns, parts.gross_input_wait_ns) == (0, 0)

    def test_the_wait_for_the_end_of_the_data_is_input_wait_and_no_step(
        self, compiled: Any
    ) -> None:
        source = Source(FOUR_EXECUTIONS, end_s=0.2)

        source.fit(b.small_model(**compiled), epochs=2)
        recorded = b.recorded_in(source.ends_ns)

        assert len(recorded) == 2
        for parts, (start, end) in zip(recorded, source.ends_ns, strict=True):
            waited_ns = parts.waits.get(IdleCause.INPUT_WAIT, 0) + parts.gross_input_wait_ns
            # What is told inside a step is spread over all of it, which is a little longer.
            assert waited_ns == t.within_a_tenth(end - start)


class TestAnEpochThatEndedInNoBatch:
    def test_leaves_its_wait_to_no_step_of_the_next(self) -> None:
        source = Source(FOUR_EXECUTIONS, end_s=0.4)

        source.fit(b.small_model(b.SleepingCompute(0.02), steps_per_execution=4), epochs=3)

        slept_ns = sum(b.lengths_ns(source.slow.spans_ns))
        recorded_ns = [
            e.value
            for e in b.records()
            if e.kind is RingKind.AMOUNT and e.phase is TrainingPhase.INPUT_WAIT
        ]
        of_ends_ns = [ns for ns in recorded_ns if ns >= 400 * MS]
        assert len(of_ends_ns) == 3
        assert sum(recorded_ns) - sum(of_ends_ns) == pytest.approx(slept_ns, abs=200 * MS)
