"""``prefetch_to_device`` in Keras on torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders_prefetch import readers
from tests.keras.later import b
from tests.keras.prefetched_py_datasets import PyDatasetSpecification
from trainer_hooks.keras.adapter_facts import adapter_facts
from trainer_hooks.prefetch import prefetch_to_device

pytestmark = pytest.mark.keras_torch


class TestAPyDataset(PyDatasetSpecification):
    pass


class TestADataLoader:
    def loader(self) -> Any:
        import torch

        rows, sums = b.rows_and_sums(70)
        both = torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(sums))
        return torch.utils.data.DataLoader(both, batch_size=b.BATCH, shuffle=True)

    def history(self, data: Any, *callbacks: Any) -> Any:
        model = b.small_model()
        said = model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=list(callbacks))
        return said.history

    def test_teaches_the_same_when_it_is_prefetched(self) -> None:
        assert self.history(prefetch_to_device(self.loader())) == self.history(self.loader())
        assert readers() == []

    def test_is_known_by_its_facts_and_tagged_when_it_is_prefetched(self) -> None:
        from keras.src.trainers.data_adapters import get_data_adapter

        adapter = get_data_adapter(prefetch_to_device(self.loader()))
        facts = adapter_facts(adapter)
        self.history(prefetch_to_device(self.loader()), b.tagger())

        assert (facts["kind"], facts["batch_size"], facts["batches"]) == ("DataLoader", b.BATCH, 5)
        assert facts["workers"] == 0
        assert b.facts_of_the_loader()["batch_size"] == b.BATCH
        assert b.phase_ns()["input_wait"] > 0


class TestAGenerator:
    def test_teaches_the_same_when_it_is_prefetched(self) -> None:
        def losses(data: Any) -> Any:
            return b.small_model().fit(data, steps_per_epoch=4, epochs=2, verbose=0).history["loss"]

        bare = losses(iter(b.SlowBatches(0.0)))

        assert losses(prefetch_to_device(iter(b.SlowBatches(0.0)))) == bare

    def test_of_numpy_arrays_stays_one_where_there_is_no_gpu(self) -> None:
        (batch,) = prefetch_to_device(iter([np.ones(3)]), device="cpu")

        assert isinstance(batch, np.ndarray)
