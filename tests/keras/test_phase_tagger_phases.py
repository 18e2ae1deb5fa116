"""What ``PhaseTagger`` records on each backend, compared with sleeps that note when they were.

Each sleep must lie in one phase from its beginning to its end, however busy the machine is.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import builders, keras

STEPS, EPOCHS, HELD_OUT = 6, 2, 3
EACH_CALL = ("on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end")
TRAIN, VALIDATION, PREDICT = TrainingMode.TRAIN, TrainingMode.VALIDATION, TrainingMode.PREDICT
INPUT_WAIT = TrainingPhase.INPUT_WAIT


def after_peeks(source: Any) -> list[tuple[int, int]]:
    """When it slept, without the two batches that Keras reads early, to see what they are."""
    spans_ns: list[tuple[int, int]] = source.spans_ns
    return spans_ns[0 if builders.backend() == "tensorflow" else 2 :]


class Trained:
    """A training run with validation, all of whose parts sleep.

    Args:
        is_asynchronous: Whether Keras may call callbacks on other threads.
        compiled: Arguments of ``compile``.
    """

    def __init__(self, *, is_asynchronous: bool, **compiled: Any) -> None:
        self.compute, self.edges = builders.SleepingCompute(0.01), builders.Edges()
        self.source, self.held_out = builders.SlowBatches(0.01), builders.SlowBatches(0.01)
        self.sleeper = builders.SleepingCallback(
            *EACH_CALL, seconds=0.004, async_safe=is_asynchronous
        )
        model = builders.warmed_model(self.compute, **compiled)
        hook = builders.tagger()
        data, steps = builders.fed_by(self.source, STEPS)
        held_out, held_out_steps = builders.fed_by(self.held_out, HELD_OUT)
        model.fit(
            data,
            steps_per_epoch=steps,
            epochs=EPOCHS,
            validation_data=held_out,
            validation_steps=held_out_steps,
            verbose=0,
            callbacks=[self.sleeper, hook, self.edges],
        )
        spans_ns, each = self.compute.spans_ns, STEPS + HELD_OUT
        self.steps_ns = [span for at, span in enumerate(spans_ns) if at % each < STEPS]
        self.validations_ns = [span for at, span in enumerate(spans_ns) if at % each >= STEPS]
        calls_elsewhere = hasattr(keras.callbacks.CallbackList, "_async_dispatch")
        self.is_asynchronous = is_asynchronous and calls_elsewhere


def cell(backend: str, *, is_asynchronous: bool = False, **compiled: Any) -> Any:
    settings = {"is_asynchronous": is_asynchronous, **compiled}
    name = ", ".join([backend, *(name for name, is_set in settings.items() if is_set)])
    return pytest.param(settings, marks=getattr(pytest.mark, f"keras_{backend}"), id=name)


@pytest.mark.parametrize(
    "settings",
    [
        cell("jax"),
        cell("jax", is_asynchronous=True),
        cell("jax", run_eagerly=True),
        cell("tensorflow"),
        cell("tensorflow", run_eagerly=True),
        cell("tensorflow", run_eagerly=True, steps_per_execution=3),
        cell("torch"),
        cell("torch", is_asynchronous=True),
    ],
)
@pytest.mark.versions
class TestATrainingRun:
    @pytest.fixture
    def trained(self, trained_once: Any, settings: dict[str, Any]) -> Any:
        return trained_once(Trained, **settings)

    def test_waits_for_input_while_its_sources_sleep(self, trained: Trained) -> None:
        assert len(trained.source.spans_ns) >= EPOCHS * STEPS  # an older Keras reads one more
        assert builders.phases_within(trained.source.spans_ns) == {(INPUT_WAIT, TRAIN)}
        assert builders.phases_within(after_peeks(trained.held_out)) == {(INPUT_WAIT, VALIDATION)}
        assert "input_wait" not in builders.facts().loader  # where "gross" would be

    def test_is_in_a_step_or_in_validation_while_it_computes(self, trained: Trained) -> None:
        if trained.is_asynchronous and builders.backend() == "jax":
            pytest.skip("JAX computes while its host is elsewhere")
        assert builders.phases_within(trained.steps_ns) == {(TrainingPhase.TRAIN_STEP, TRAIN)}
        assert builders.phases_within(trained.validations_ns) == {
            (TrainingPhase.VALIDATION, VALIDATION)
        }
        if builders.backend() != "jax":  # where an older Keras compiles in the second fit, too
            assert builders.phase_ns()["compile"] == 0

    @pytest.mark.measured
    def test_is_in_callbacks_while_these_delay_it(self, trained: Trained) -> None:
        called_ns, recorded_ns = (
            trained.sleeper.spent_ns,
            builders.facts().callback_ns["SleepingCallback"],
        )
        if trained.is_asynchronous:  # calls at the end of a batch are on other threads
            assert recorded_ns < 0.8 * called_ns
            assert builders.phase_ns()["callbacks"] < called_ns
        else:
            assert builders.phases_within(trained.sleeper.spans_ns) == {
                (TrainingPhase.CALLBACKS, TRAIN)
            }
            assert called_ns <= recorded_ns < 1.1 * called_ns + 20_000_000

    def test_has_a_phase_at_any_time(self, trained: Trained) -> None:
        edges = trained.edges
        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert builders.phase_ns()["other"] == 0
        assert builders.present_phase() is TrainingPhase.OTHER

    def test_has_its_steps_samples_and_epochs_counted(self, trained: Trained) -> None:
        assert builders.marks(RingKind.STEP) == list(range(1, EPOCHS * STEPS + 1))
        assert builders.marks(RingKind.SAMPLES)[-1] == EPOCHS * STEPS * builders.BATCH
        assert builders.marks(RingKind.EPOCH) == list(range(EPOCHS))

    def test_has_each_step_done_after_its_compute_and_before_the_next(
        self, trained: Trained
    ) -> None:
        done_ns: dict[int, int] = {}  # by step, when it was first recorded
        for event in builders.records():
            if event.kind is RingKind.DEVICE_DONE:
                done_ns.setdefault(event.value, event.at_ns)
        for step, at_ns in done_ns.items():
            assert at_ns >= trained.steps_ns[step - 1][1]
        if not trained.is_asynchronous:
            assert sorted(done_ns) == list(range(1, EPOCHS * STEPS + 1))
            for step, (next_ns, _) in enumerate(trained.steps_ns[1:], 1):
                assert done_ns[step] <= next_ns
        assert len(done_ns) >= EPOCHS * STEPS - 2


@pytest.mark.usefixtures("each_backend")
class TestEvaluateAndPredict:
    @pytest.mark.parametrize(
        ("call", "mode", "phase"),
        [
            ("evaluate", VALIDATION, TrainingPhase.VALIDATION),
            ("predict", PREDICT, TrainingPhase.PREDICT),
        ],
    )
    def test_are_tagged_outside_of_fit(
        self, call: str, mode: TrainingMode, phase: TrainingPhase
    ) -> None:
        source, compute = builders.SlowBatches(0.01), builders.SleepingCompute(0.01)
        sleeper = builders.SleepingCallback(
            "on_predict_batch_end", "on_test_batch_end", seconds=0.004
        )
        model, (data, steps) = builders.warmed_model(compute), builders.fed_by(source, 4)

        getattr(model, call)(data, steps=steps, verbose=0, callbacks=[builders.tagger(), sleeper])

        assert sleeper.times == len(compute.spans_ns) == 4
        assert builders.phases_within(after_peeks(source)) == {(INPUT_WAIT, mode)}
        assert builders.phases_within([*compute.spans_ns, *sleeper.spans_ns]) == {(phase, mode)}
        assert builders.present_phase() is TrainingPhase.OTHER


@pytest.mark.usefixtures("each_backend")
class TestTheFacts:
    @pytest.mark.versions
    def test_describe_what_trains_on_which_data(self) -> None:
        builders.fit_rows(
            builders.small_model(), 60, builders.tagger(run="resnet", gpus=[1]), batch_size=8
        )
        facts, loader = builders.facts(), builders.facts().loader
        held_out = builders.SlowSequence(3, seconds=0.0, workers=1)
        settings = {"steps_per_epoch": 1, "verbose": 0, "callbacks": [builders.tagger()]}
        model, batches = builders.small_model(), iter(builders.SlowBatches(0.0))
        model.fit(batches, validation_data=held_out, **settings)
        line = sys._getframe().f_lineno - 1

        assert (facts.run, facts.gpus, facts.on_cpu) == ("resnet", ("1",), True)
        assert facts.framework == f"keras/{builders.backend()}"
        assert (loader["kind"], loader["adapter"]) == ("arrays", "ArrayDataAdapter")
        assert loader["batch_size"] == 8
        assert 60 in builders.marks(RingKind.SAMPLES)  # the last batch is a short one
        recorded = builders.facts().loader
        assert (recorded["kind"], recorded["class"]) == ("generator", "SlowBatches.__iter__")
        assert "batch_size" not in recorded
        assert recorded["made_at"] == f"test_phase_tagger_phases.py:{line}"
        assert recorded["validation_made_at"] == recorded["made_at"]
        assert str(recorded["defined_at"]).startswith("builders_keras.py:")
        held = [recorded[f"validation_{name}"] for name in ("kind", "class", "workers")]
        assert held == ["PyDataset", "SlowSequence", 1]
