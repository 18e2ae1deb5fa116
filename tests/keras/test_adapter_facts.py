"""The facts about a tf.data pipeline: what its stages do, never what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.core.ring_format.events import LoaderFacts
from tests.keras.later import keras, tf
from trainer_hooks.trainers.loader_facts import adapter_facts

pytestmark = pytest.mark.keras_tensorflow


def pipeline_facts(make: Callable[[Any], Any]) -> LoaderFacts:
    from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

    rows = tf.data.Dataset.from_tensor_slices([[1.0], [2.0], [3.0], [4.0]])
    return adapter_facts(TFDatasetAdapter(make(rows)))


PLAIN = {"kind": "tf.data", "adapter": "TFDatasetAdapter", "cache": False, "parallel": False}


@pytest.mark.parametrize(
    ("make", "more"),
    [
        (lambda rows: rows.batch(2), {}),  # TensorFlow may add prefetching itself
        (lambda rows: rows.batch(2).prefetch(2), {"prefetch": True}),
        (lambda rows: rows.prefetch(1).batch(2), {"prefetch": True}),
        (lambda rows: rows.map(lambda row: row + 1).batch(2), {}),
        (
            lambda rows: rows.cache().map(lambda row: row + 1, num_parallel_calls=2).batch(2),
            {"cache": True, "parallel": True},
        ),
    ],
)
def test_a_pipeline_is_described_by_its_stages(
    make: Callable[[Any], Any], more: dict[str, bool]
) -> None:
    facts = pipeline_facts(make)

    assert facts["batches"] == 2
    assert {
        key: facts[key] for key in facts if key not in ("batches", "batch_size")
    } == PLAIN | more


class TestTheFactsOfAPyDataset:
    def facts(self, **methods: Any) -> LoaderFacts:
        kind = type("OwnDataset", (keras.utils.PyDataset,), {"__len__": lambda self: 3, **methods})
        return adapter_facts(SimpleNamespace(py_dataset=kind(workers=2)))

    def test_name_what_is_called_between_two_epochs(self) -> None:
        assert self.facts(on_epoch_end=lambda self: None)["epoch_hooks"] == "on_epoch_end"

    def test_name_nothing_where_keras_calls_only_its_own(self) -> None:
        facts = self.facts()

        assert facts["workers"] == 2
        assert "epoch_hooks" not in facts


class TestAnAdapterOfAnotherKeras:
    def test_is_named_whatever_it_is(self) -> None:
        class StrangeAdapter:
            @property
            def batch_size(self) -> int:
                raise RuntimeError("not now")

        recorded = adapter_facts(StrangeAdapter())

        assert recorded == {"adapter": "StrangeAdapter", "kind": "StrangeAdapter"}
