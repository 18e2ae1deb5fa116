"""``prefetch_to_device`` in Keras on torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders_prefetch import readers
from tests.keras.later import b, torch
from tests.keras.later import on_torch as t
from trainer_hooks.keras.adapter_facts import adapter_facts
from trainer_hooks.prefetch import prefetch_to_device

pytestmark = pytest.mark.keras_torch


class TestADataLoader:
    def loader(self) -> Any:
        rows, sums = b.rows_and_sums(70)
        both = torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(sums))
        return t.loader_of(both, shuffle=True)

    def left_by(self, data: Any, *callbacks: Any) -> Any:
        return b.left_by(b.small_model(), *callbacks, x=data, epochs=2, shuffle=False)

    def test_teaches_the_same_when_it_is_prefetched(self) -> None:
        assert self.left_by(prefetch_to_device(self.loader())) == self.left_by(self.loader())
        assert readers() == []

    def test_is_known_by_its_facts_and_tagged_when_it_is_prefetched(self) -> None:
        from keras.src.trainers.data_adapters import get_data_adapter

        facts = adapter_facts(get_data_adapter(prefetch_to_device(self.loader())))
        self.left_by(prefetch_to_device(self.loader()), b.tagger())

        assert (facts["kind"], facts["batch_size"], facts["batches"]) == ("DataLoader", b.BATCH, 5)
        assert facts["workers"] == 0
        assert b.facts().loader["batch_size"] == b.BATCH
        assert b.phase_ns()["input_wait"] > 0


def test_numpy_arrays_of_a_generator_stay_some_where_there_is_no_gpu() -> None:
    (batch,) = prefetch_to_device(iter([np.ones(3)]), device="cpu")

    assert isinstance(batch, np.ndarray)
