"""``PhaseTagger`` on a model whose batches are split: it records everything and changes nothing."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring_format.events import RingKind
from tests.imported_later import ImportedLater
from tests.keras.later import builders as k
from tests.multi_gpu.later import builders, keras, tf
from trainer_hooks.examples.busy_spans import unoccupied_seconds

sleeping: Any = ImportedLater("examples.unequal_gpus")

pytestmark = pytest.mark.multi_gpu

MS = 1_000_000
DEVICES, RATIOS = ("CPU:1", "CPU:2"), (3, 2)
SPEED = 800
"""Samples/s of both devices: of 40 samples one gets 24, which take 30 ms."""


def tagger(**arguments: Any) -> Any:
    return k.tagger(gpus=[0, 1], **arguments)


def split(*layers: Any) -> Any:
    """A regression whose batches are split 3:2 over two devices."""
    keras.utils.set_random_seed(1)
    template = keras.Sequential(
        [keras.Input((k.FEATURES,)), keras.layers.Dense(4), *layers, keras.layers.Dense(1)]
    )
    model = builders.parallel(template, devices=DEVICES, ratios=RATIOS)
    model.compile(optimizer="sgd", loss="mse")
    return model


@cache
def regression() -> Any:
    return split()


@pytest.fixture
def model() -> Any:
    """The same regression for all tests: its steps are traced once."""
    regression().ratios = RATIOS
    return regression()


def computed_ns(notes: Any, within: list[tuple[int, int]]) -> float:
    """The part of these spans in which at least one device computed."""
    idle_s = unoccupied_seconds(within, notes.spans_ns)
    return sum(k.lengths_ns(within)) - idle_s * 1e9


def slow_on_both(notes: Any) -> Any:
    gpus = {device: sleeping.SleepingGpu(SPEED, notes.note) for device in DEVICES}
    return sleeping.SleepingCompute(gpus)


class TestATaggedTraining:
    def test_has_the_results_of_an_untagged_one(self) -> None:
        def outcome(*hooks: Any) -> Any:
            template = builders.normalized(dropout=0.3)
            training = builders.Training(fitted={"callbacks": list(hooks)}, evaluates=False)
            return training.on(builders.parallel(template, devices=DEVICES, ratios=RATIOS))

        furthest = outcome(tagger()).furthest_from(outcome())

        assert furthest == dict.fromkeys(furthest, 0)

    @pytest.mark.measured
    @pytest.mark.alone
    def test_is_tagged_from_beginning_to_end(self, tmp_path: Path) -> None:
        notes, edges = k.Notes(), k.Edges()
        model = split(slow_on_both(notes))
        k.fit_rows(model, 40, batch_size=40)  # compiled before it is tagged
        saves = keras.callbacks.ModelCheckpoint(
            str(tmp_path / "m.weights.h5"), save_weights_only=True
        )
        sleeper = k.SleepingCallback("on_epoch_end", seconds=0.05)
        callbacks = [tagger(), edges, saves, sleeper]
        validated = {"validation_data": k.rows_and_sums(80), "validation_batch_size": 40}

        k.fit_rows(model, 200, *callbacks, batch_size=40, epochs=3, **validated)

        phase_ns = k.phase_ns()
        validated_ns = computed_ns(notes, edges.validations_ns)
        trained_ns = computed_ns(notes, [(edges.began_ns, edges.ended_ns)]) - validated_ns
        assert edges.tagged_ns / edges.wall_ns == pytest.approx(1.0, abs=0.01)
        assert phase_ns["other"] < 0.01 * edges.wall_ns
        assert trained_ns <= phase_ns["train_step"] + phase_ns["device_sync"]
        assert validated_ns <= phase_ns["validation"] <= sum(k.lengths_ns(edges.validations_ns))
        assert phase_ns["checkpoint"] > 0
        assert phase_ns["callbacks"] >= sleeper.spent_ns

    def test_counts_each_step_once_and_each_sample(self, model: Any) -> None:
        k.fit_rows(model, 90, tagger(), batch_size=40, epochs=2)

        assert k.marks(RingKind.STEP) == [1, 2, 3, 4, 5, 6]
        assert k.marks(RingKind.SAMPLES)[-1] == 2 * 90
        assert k.marks(RingKind.EPOCH) == [0, 1]

    @pytest.mark.measured
    def test_reports_its_framework_loader_and_shares(self, model: Any) -> None:
        k.fit_rows(model, 40, tagger(), batch_size=40)

        facts = k.facts()
        assert facts.framework == "keras/tensorflow"
        assert facts.gpus == ("0", "1")
        assert facts.shares == {"0": 0.6, "1": 0.4}
        assert (facts.loader["kind"], facts.loader["batches"]) == ("arrays", 1)


@pytest.mark.alone
class TestTheTapOnASplitModel:
    @pytest.mark.measured
    def test_counts_tracing_as_compile_time_and_new_ratios_need_none(self) -> None:
        traced_ns = []

        class Tracing(keras.layers.Layer):  # type: ignore[misc]
            def call(self, rows: Any) -> Any:
                began_ns = time.monotonic_ns()
                if not tf.distribute.in_cross_replica_context():
                    time.sleep(0.1)  # runs while it is traced, and not in the graph
                    traced_ns.append(time.monotonic_ns() - began_ns)
                return rows

        model = split(Tracing())
        traced_ns.clear()
        k.fit_rows(model, 80, tagger(), batch_size=40)
        first, traced_then_ns = k.phase_ns(), sum(traced_ns)
        model.ratios = [1, 4]
        k.fit_rows(model, 80, tagger(), batch_size=40)

        assert traced_then_ns >= len(DEVICES) * 100 * MS
        assert first["compile"] >= traced_then_ns
        assert first["train_step"] < 100 * MS
        assert sum(traced_ns) == traced_then_ns
        assert k.phase_ns()["compile"] == first["compile"]
