"""Where TensorFlow compiles nothing, fetch follows compute follows fetch: each is told as it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b, tf
from tests.keras.later import on_tensorflow as t

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
BATCHES, WAIT_S, COMPUTE_S = 10, 0.02, 0.01  # the last of executions of four is a short one


@pytest.fixture(params=["model", "program"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What ``compile`` is told, by one who debugs his model, or all of his program."""
    tf.config.run_functions_eagerly(request.param == "program")
    return {"run_eagerly": request.param == "model"}


@pytest.fixture(autouse=True)
def compiles_afterwards(framework: str) -> Iterator[None]:
    """Other tests are compiled."""
    yield
    tf.config.run_functions_eagerly(False)


class Trained:
    """A training of two epochs that waits, computes, and notes both from below.

    Attributes:
        waits_ns: All but the first, of which no end of a step says that the device felt it.
        late_ns: By how much its sleeps were too long, on a busy machine.
    """

    def __init__(self, **options: Any) -> None:
        compute, source, edges = b.SleepingCompute(COMPUTE_S), b.SlowBatches(WAIT_S), b.Edges()
        model = b.small_model(compute, **options)
        compute.spans_ns.clear()
        model.fit(
            t.synchronous(source, BATCHES), epochs=2, verbose=0, callbacks=[b.tagger(), edges]
        )
        self.wall_ns: int = edges.wall_ns
        self.computes_ns: list[tuple[int, int]] = compute.spans_ns
        self.waits_ns = source.spans_ns[1:]
        self.late_ns: float = source.late_ns


def recorded_waits_ns(spans_ns: list[tuple[int, int]]) -> list[int]:
    """How much of each of those stretches the daemon takes for a wait for input."""
    return [parts.waits.get(IdleCause.INPUT_WAIT, 0) for parts in b.recorded_in(spans_ns)]


@pytest.mark.parametrize("steps_per_execution", [1, 4])
class TestATrainingThatIsNotCompiled:
    @pytest.fixture
    def trained(self, trained_once: Any, steps_per_execution: int, options: Any) -> Any:
        return trained_once(Trained, steps_per_execution=steps_per_execution, **options)

    @pytest.mark.measured
    def test_has_every_wait_recorded_and_none_called_hidden(self, trained: Trained) -> None:
        assert len(trained.waits_ns) == 2 * BATCHES - 1
        assert recorded_waits_ns(trained.waits_ns) == b.lengths_ns(trained.waits_ns)
        assert "input_wait" not in b.facts().loader

    @pytest.mark.measured
    def test_has_every_compute_recorded_as_step_and_no_compile(self, trained: Trained) -> None:
        recorded = b.recorded_in(trained.computes_ns)
        assert len(recorded) == 2 * BATCHES
        assert [parts.step_ns for parts in recorded] == b.lengths_ns(trained.computes_ns)
        assert b.phase_ns()["compile"] == 0
        assert b.phase_ns()["other"] < 0.01 * trained.wall_ns

    @pytest.mark.measured
    def test_has_each_step_counted_and_done_after_its_compute(self, trained: Trained) -> None:
        done_ns: dict[int, int] = {}  # by step, when that was first told
        for event in b.records():
            if event.kind is RingKind.DEVICE_DONE:
                done_ns.setdefault(event.value, event.at_ns)
        assert list(done_ns) == list(range(1, 2 * BATCHES + 1))
        ends_ns = [end for _, end in trained.computes_ns]
        following_ns = [start for start, _ in trained.waits_ns]
        assert all(end <= at for end, at in zip(ends_ns, done_ns.values(), strict=True))
        assert all(at <= next_ for at, next_ in zip(done_ns.values(), following_ns, strict=False))
        assert b.marks(RingKind.STEP)[-1] == 2 * BATCHES
        assert b.marks(RingKind.SAMPLES)[-1] == 2 * BATCHES * b.BATCH

    def test_goes_on_where_it_is_compiled_from_its_second_epoch_on(
        self, steps_per_execution: int
    ) -> None:
        again = b.Does(lambda _: tf.config.run_functions_eagerly(False), "on_epoch_end")
        model = b.small_model(steps_per_execution=steps_per_execution)
        tf.config.run_functions_eagerly(True)

        b.fit_rows(model, 8 * b.BATCH, b.tagger(), again, epochs=3)

        assert int(model.optimizer.iterations) == 3 * 8
        assert b.marks(RingKind.STEP)[:1] == [1]
        assert b.present_phase() is TrainingPhase.OTHER


class TestAValidationThatIsNotCompiled:
    @pytest.mark.measured
    @pytest.mark.parametrize("steps_per_execution", [1, 4])
    def test_records_its_waits(self, steps_per_execution: int, options: dict[str, Any]) -> None:
        source, compute = b.SlowBatches(WAIT_S), b.SleepingCompute(COMPUTE_S)
        model = b.small_model(compute, steps_per_execution=steps_per_execution, **options)
        b.fit_rows(model, 4 * b.BATCH, b.tagger(), validation_data=t.synchronous(source, BATCHES))

        assert len(source.spans_ns) == BATCHES
        assert recorded_waits_ns(source.spans_ns) == b.lengths_ns(source.spans_ns)
        computes_ns = compute.spans_ns[-BATCHES:]
        computed = [parts.validation_ns for parts in b.recorded_in(computes_ns)]
        assert computed == b.lengths_ns(computes_ns)


class TestBesideAGpuThatComputesOnItsOwn:
    """Its work may still go on when Python asks for the next batch: nobody says when it is done."""

    @pytest.fixture(autouse=True)
    def a_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        present = [SimpleNamespace(device_type=kind) for kind in ("CPU", "GPU")]
        monkeypatch.setattr(tf.config, "list_logical_devices", lambda *_: present)

    @pytest.mark.measured
    @pytest.mark.alone
    def test_only_the_first_wait_of_an_execution_is_exact_and_the_others_are_gross(self) -> None:
        trained = Trained(steps_per_execution=4, run_eagerly=True)

        firsts_ns = [*trained.waits_ns[3 : BATCHES - 1 : 4], *trained.waits_ns[BATCHES - 1 :: 4]]
        assert recorded_waits_ns(firsts_ns) == b.lengths_ns(firsts_ns)
        (whole,) = b.recorded_in([(trained.waits_ns[0][0], time.monotonic_ns())])
        others_ns = sum(b.lengths_ns(trained.waits_ns)) - sum(b.lengths_ns(firsts_ns))
        others = 2 * BATCHES - 1 - len(firsts_ns)
        late_ns = others * (MS + trained.late_ns)
        assert whole.gross_input_wait_ns == pytest.approx(others_ns, rel=0.1, abs=late_ns)
        assert b.facts().loader["input_wait"] == "gross"

    def test_no_step_is_called_done_before_keras_waited_for_it(self) -> None:
        Trained(steps_per_execution=4, run_eagerly=True)

        assert b.marks(RingKind.DEVICE_DONE) == [4, 8, 10, 14, 18, 20]
        assert b.marks(RingKind.STEP)[-1] == 2 * BATCHES

    @pytest.mark.measured
    def test_one_step_an_execution_is_recorded_as_ever(self) -> None:
        trained = Trained(steps_per_execution=1, run_eagerly=True)

        assert recorded_waits_ns(trained.waits_ns) == b.lengths_ns(trained.waits_ns)
        assert "input_wait" not in b.facts().loader

    def test_data_that_end_within_a_call_leave_the_steps_before_counted(self) -> None:
        """A Keras that fetches batch by batch hears of the end as an error, and passes it on."""
        from trainer_hooks.ring.guard import Guard
        from trainer_hooks.ring.phase_modes import TRAIN_MODE
        from trainer_hooks.taps.tensorflow.eager import EagerStep

        recorded: list[object] = []
        machine = SimpleNamespace(
            is_calling_back=False,
            fetch_begin=lambda: recorded.append("fetch"),
            fetch_beside_begin=lambda: recorded.append("beside"),
            fetch_end=lambda: recorded.append("step"),
            fetch_exhausted=lambda: recorded.append("exhausted"),
            dispatched=lambda steps, samples: recorded.append((steps, samples)),
        )
        listener: Any = SimpleNamespace(
            machine_here=machine, guard=Guard(print), failed=lambda: recorded.append("failed")
        )
        step = EagerStep(
            lambda data: [next(data) for _ in range(4)], TRAIN_MODE, listener, batches=4
        )

        with pytest.raises(StopIteration):
            step(iter(tf.data.Dataset.from_tensor_slices(tf.zeros((16, 1))).batch(8)))

        beside = ["beside", "step"]  # the last one found nothing
        assert recorded == ["fetch", "step", *beside, *beside, (2, 16), "exhausted"]
