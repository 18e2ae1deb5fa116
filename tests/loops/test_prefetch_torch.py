"""``prefetch_to_device`` in custom PyTorch loops, without a GPU."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock, call

import pytest

from tests.loops.builders_loops import Sleeps, finds_wait, stretch
from trainer_hooks import phase, step, timed
from trainer_hooks.prefetch import prefetch_to_device

pytestmark = pytest.mark.keras_torch

Pair = namedtuple("Pair", "rows labels")


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


class TestBatches:
    def test_record_gradients_if_the_training_does(self, torch: Any) -> None:
        def source() -> Iterator[Any]:
            yield torch.ones(2, requires_grad=True) * 2

        with torch.no_grad():
            (without,) = prefetch_to_device(source())
        (recorded,) = prefetch_to_device(source())

        assert (without.requires_grad, recorded.requires_grad) == (False, True)


class TestADataLoader:
    def loader(self, torch: Any, **settings: Any) -> Any:
        rows = torch.utils.data.TensorDataset(torch.arange(14.0))
        return torch.utils.data.DataLoader(rows, batch_size=4, **settings)

    def epochs(self, torch: Any, loader: Any) -> list[list[float]]:
        torch.manual_seed(5)
        return [[row for (batch,) in loader for row in batch.tolist()] for _ in range(2)]

    @pytest.mark.parametrize("settings", [{}, {"num_workers": 1, "persistent_workers": True}])
    def test_is_shuffled_as_it_would_be_without(self, torch: Any, settings: dict[str, Any]) -> None:
        bare = self.epochs(torch, self.loader(torch, shuffle=True, **settings))

        ahead = prefetch_to_device(self.loader(torch, shuffle=True, **settings))

        assert self.epochs(torch, ahead) == bare
        assert bare[0] != bare[1]

    def test_is_still_one_with_all_that_it_has(self, torch: Any) -> None:
        loader = self.loader(torch, drop_last=True)
        ahead = prefetch_to_device(loader)

        assert isinstance(ahead, torch.utils.data.DataLoader)
        assert (len(ahead), ahead.batch_size, ahead.num_workers) == (3, 4, 0)
        assert ahead.dataset is loader.dataset
        assert ahead.sampler is loader.sampler
        ahead.num_workers = 1
        assert loader.num_workers == 1
        with pytest.raises(ValueError, match="DataLoader"):
            ahead.batch_size = 8

    @pytest.mark.measured
    def test_is_tagged_with_the_wait_that_remains(self, torch: Any) -> None:
        fetches, steps, wall = Sleeps(0.03), Sleeps(0.01), Sleeps()

        class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return 12

            def __getitem__(self, index: int) -> int:
                fetches()
                return index

        loader = prefetch_to_device(torch.utils.data.DataLoader(Slow()))
        with stretch() as found, wall.around():
            for _ in timed(loader):
                with phase("train_step"):
                    steps()
                step()

        true_ns = wall.spent_ns - steps.spent_ns
        assert true_ns < fetches.spent_ns - steps.spent_ns / 2  # the steps hide as much of it
        assert finds_wait(found[0], true_ns, steps=12)
        assert found[0].after.facts.loader["batch_size"] == 1


class TestAnotherDevice:
    """``meta`` stands for one: tensors on it have no data, but a place."""

    class Graph:
        def __init__(self, device: str = "cpu") -> None:
            self.device = device

        def to(self, device: Any) -> Any:
            return type(self)(str(device))

    def test_is_where_tensors_land_however_deep(self, torch: Any) -> None:
        one = torch.ones(2)
        batch = {
            "list": [one, (one, "name")],
            "pair": Pair(one, 3),
            "mappings": OrderedDict(x=one),
            "more": defaultdict(list, x=one),
            "a user's": UserDict(x=one),
            "graph": self.Graph(),
            "packed": torch.nn.utils.rnn.pack_sequence([one]),
        }

        (found,) = prefetch_to_device([batch], device="meta")

        assert {tensor.device.type for tensor in self.tensors(torch, found)} == {"meta"}
        assert [type(value) for value in found.values()] == [type(v) for v in batch.values()]
        assert found["more"].default_factory is list
        assert found["graph"].device == "meta"
        assert found["list"][1][1] == "name"
        assert {tensor.device.type for tensor in self.tensors(torch, batch)} == {"cpu"}

    def tensors(self, torch: Any, batch: dict[str, Any]) -> Iterator[Any]:
        yield batch["list"][0]
        yield batch["list"][1][0]
        yield batch["pair"].rows
        yield batch["packed"].data
        for name in ("mappings", "more", "a user's"):
            yield batch[name]["x"]

    @pytest.mark.parametrize("device", ["cuda", "cuda:3", 0])
    def test_missing_device_is_refused(self, torch: Any, device: Any) -> None:
        if torch.cuda.is_available():
            pytest.skip("there is a GPU here")
        with pytest.raises(ValueError, match="no GPU"):
            prefetch_to_device([], device=device)

    def test_unknown_device_name_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'board:0'"):
            prefetch_to_device([], device="board:0")
        with pytest.raises(TypeError, match=r"1\.5"):
            prefetch_to_device([], device=1.5)


class TestTheStreamsOfCuda:
    """Without CUDA: a mock records the calls in order."""

    def test_copy_from_pinned_memory_and_keep_memory_until_the_step_is_done(
        self, torch: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from trainer_hooks.prefetch.ahead import read_ahead
        from trainer_hooks.prefetch.on_torch import CudaHost

        cuda = MagicMock()

        class Row(torch.Tensor):  # type: ignore[misc]
            def is_pinned(self) -> bool:
                return False

            def pin_memory(self) -> Any:
                cuda.pin()
                return self

            def to(self, device: Any, non_blocking: bool = False) -> Any:
                cuda.copy(non_blocking=non_blocking)
                return super().to(device)

            def record_stream(self, stream: Any) -> None:
                cuda.keep_for(stream)

        monkeypatch.setattr(torch.cuda, "Stream", lambda device: cuda.side)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: cuda.training)
        monkeypatch.setattr(torch.cuda, "Event", lambda: cuda.event)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
        host = CudaHost(torch.device("meta"), converts_arrays=False)

        (found,) = read_ahead(iter([{"row": torch.ones(2).as_subclass(Row)}]), 1, host)

        assert found["row"].device.type == "meta"
        assert cuda.mock_calls == [
            call.side.__enter__(),
            call.pin(),
            call.copy(non_blocking=True),
            call.event.record(cuda.side),
            call.side.__exit__(None, None, None),
            call.training.wait_event(cuda.event),
            call.keep_for(cuda.training),
        ]
