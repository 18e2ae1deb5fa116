"""What Keras fetches before it calls any callback is recorded: the wait for the first batch."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

from gpumon.core.phase import TrainingPhase
from tests.keras.later import builders, keras


class Slept:
    """A source that sleeps whenever its first batch is requested, and notes when."""

    def __init__(self) -> None:
        self.spans_ns: list[tuple[int, int]] = []

    def batch(self, index: int) -> Any:
        if index == 0:
            began_ns = time.monotonic_ns()
            time.sleep(0.1)
            self.spans_ns.append((began_ns, time.monotonic_ns()))
        return builders.rows_and_sums(8, seed=index)

    def generator(self) -> Any:
        yield from map(self.batch, range(6))

    def py_dataset(self) -> Any:
        methods = {"__len__": lambda _: 6, "__getitem__": lambda _, index: self.batch(index)}
        return type("Dataset", (keras.utils.PyDataset,), methods)()


def functions_of_keras() -> list[Any]:
    adapters = "keras.src.trainers.data_adapters"
    peeks = importlib.import_module(f"{adapters}.generator_data_adapter")
    datasets = importlib.import_module(f"{adapters}.py_dataset_adapter")
    trainer = importlib.import_module("keras.src.trainers.trainer")
    return [
        peeks.peek_and_restore,
        datasets.PyDatasetAdapter.get_tf_dataset,
        trainer.Trainer._symbolic_build,
    ]


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("kind", ["generator", "py_dataset"])
def test_the_wait_for_the_first_batch_is_recorded_and_keras_is_as_before(kind: str) -> None:
    from trainer_hooks.keras.first_fetch import FirstFetches

    FirstFetches.remove()  # a tagger of another test may wait for a run that never came
    before, source = functions_of_keras(), Slept()
    tagger = builders.tagger()
    around = functions_of_keras()
    settings = {"steps_per_epoch": 6, "shuffle": False, "verbose": 0}
    builders.small_model().fit(getattr(source, kind)(), callbacks=[tagger], **settings)

    assert all(one is not other for one, other in zip(before, around, strict=True))
    assert functions_of_keras() == before
    (first_phase,) = {phase for phase, _ in builders.phases_within(source.spans_ns[:1])}
    assert first_phase is TrainingPhase.INPUT_WAIT
    recorded_ns = builders.timeline().first_input_wait_ns
    assert recorded_ns is not None
    assert recorded_ns >= sum(builders.lengths_ns(source.spans_ns[:1]))
