"""``prefetch_to_device`` in Keras on torch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.builders.prefetch import readers
from tests.cuda_driver import show_driver
from tests.keras.later import builders, on_torch, torch
from trainer_hooks.prefetch import prefetch_to_device
from trainer_hooks.trainers.loader_facts import adapter_facts

pytestmark = pytest.mark.keras_torch


class TestADataLoader:
    def loader(self) -> Any:
        rows, sums = builders.rows_and_sums(70)
        both = torch.utils.data.TensorDataset(torch.from_numpy(rows), torch.from_numpy(sums))
        return on_torch.loader_of(both, shuffle=True)

    def left_by(self, data: Any, *callbacks: Any) -> Any:
        return builders.left_by(builders.small_model(), *callbacks, x=data, epochs=2, shuffle=False)

    def test_teaches_the_same_when_it_is_prefetched(self) -> None:
        assert self.left_by(prefetch_to_device(self.loader())) == self.left_by(self.loader())
        assert readers() == []

    def test_is_known_by_its_facts_and_tagged_when_it_is_prefetched(self) -> None:
        from keras.src.trainers.data_adapters import get_data_adapter

        facts = adapter_facts(get_data_adapter(prefetch_to_device(self.loader())))
        self.left_by(prefetch_to_device(self.loader()), builders.tagger())

        assert (facts["kind"], facts["batch_size"], facts["batches"]) == (
            "DataLoader",
            builders.BATCH,
            5,
        )
        assert facts["workers"] == 0
        assert builders.facts().loader["batch_size"] == builders.BATCH
        assert builders.phase_ns()["input_wait"] > 0


def test_numpy_arrays_of_a_generator_stay_some_where_there_is_no_gpu() -> None:
    (batch,) = prefetch_to_device(iter([np.ones(3)]), device="cpu")

    assert isinstance(batch, np.ndarray)


class TestTheThreadThatCopiesToAGpu:
    @pytest.fixture
    def host(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        from trainer_hooks.prefetch.on_torch import CudaHost

        monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)  # there is no GPU here
        return CudaHost("cuda:0", converts_arrays=False)

    @pytest.mark.parametrize("records", [True, False])
    def test_leaves_captures_alone_and_has_the_gradient_mode_of_the_training_thread(
        self, monkeypatch: pytest.MonkeyPatch, host: Any, records: bool
    ) -> None:
        driver = show_driver(monkeypatch)
        with torch.set_grad_enabled(records):
            around = host.around()

        with around:
            assert driver.noted == ["thread-local"]
            assert torch.is_grad_enabled() is records

        assert driver.noted == ["thread-local", "global"]

    def test_leaves_them_alone_where_it_is_another_libraries(
        self, monkeypatch: pytest.MonkeyPatch, host: Any
    ) -> None:
        driver = show_driver(monkeypatch)
        arrived = SimpleNamespace(synchronize=lambda: driver.noted.append("arrived"))
        monkeypatch.setattr(host, "copy_to_device", lambda batch: SimpleNamespace(arrived=arrived))
        monkeypatch.setattr(host, "receive", lambda copied: driver.noted.append("received"))

        host.copy_and_wait(None)

        assert driver.noted == ["thread-local", "arrived", "global", "received"]
