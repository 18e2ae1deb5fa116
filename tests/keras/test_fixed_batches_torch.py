"""Specification of fixed_batches on torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.keras.later import torch
from trainer_hooks.batches import fixed_batches

data_of: Any = ImportedLater("torch.utils.data")

pytestmark = pytest.mark.keras_torch


def dataset(count: int) -> Any:
    rows = torch.arange(3.0 * count).reshape(count, 3)
    return data_of.TensorDataset(rows, rows.sum(1, keepdim=True))


def loader(count: int, size: int, **arguments: Any) -> Any:
    return data_of.DataLoader(dataset(count), batch_size=size, **arguments)


def numbers(batches: Any) -> list[list[int]]:
    return [(batch[0][:, 0] / 3).int().tolist() for batch in batches]


def streamed(size: int) -> Any:
    class Streamed(data_of.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return iter(dataset(7))

    return data_of.DataLoader(Streamed(), batch_size=size)


class TestADataLoader:
    @pytest.mark.parametrize(
        ("tail", "last"), [("drop", []), ("repeat", [[4, 5, 6, 4]]), ("pad", [[4, 5, 6, 4]])]
    )
    def test_becomes_one_of_complete_batches(self, tail: str, last: list[list[int]]) -> None:
        given = loader(7, 3, drop_last=True)
        batches = fixed_batches(given, 4, tail=tail)

        assert isinstance(batches, data_of.DataLoader)
        assert numbers(batches) == numbers(batches) == [[0, 1, 2, 3], *last]
        assert len(batches) == 1 + len(last)
        assert (batches.batch_size, batches.sampler) == (4, given.sampler)
        if tail == "pad":
            weights = list(batches)[-1][2]
            assert weights.flatten().tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3, 0])
            assert (weights.dtype, weights.shape) == (torch.float32, (4, 1))

    def test_keeps_its_workers_which_fill_its_batches(self) -> None:
        batches = fixed_batches(loader(5, 4, num_workers=1, shuffle=True), 4, tail="pad")

        assert batches.num_workers == 1
        assert {size for batch in batches for size in map(len, batch)} == {4}

    def test_may_hold_what_is_no_tensor(self) -> None:
        words = data_of.DataLoader(["a", "b", "c"], batch_size=2)

        assert list(fixed_batches(words, 2, tail="repeat")) == [["a", "b"], ["c", "c"]]

    @pytest.mark.parametrize("tail", ["repeat", "pad"])
    def test_stream_or_batched_loader_is_split_and_joined(self, tail: str) -> None:
        own = data_of.DataLoader(dataset(7), batch_sampler=[[0, 1, 2], [3], [4, 5, 6]])

        for given in (streamed(3), own):
            batches = fixed_batches(given, 4, tail=tail)

            assert isinstance(batches, data_of.DataLoader)
            assert numbers(batches) == numbers(batches) == [[0, 1, 2, 3], [4, 5, 6, 4]]

    def test_without_samples_has_no_batch(self) -> None:
        own = data_of.DataLoader(dataset(0), batch_sampler=[])

        for given in (loader(0, 4), own):
            for tail in ("drop", "repeat", "pad"):
                assert list(fixed_batches(given, 4, tail=tail)) == []

    def test_inputs_without_targets_cannot_be_padded(self) -> None:
        given = data_of.DataLoader(torch.zeros(5, 2), batch_size=2)

        with pytest.raises(ValueError, match="no targets"):
            list(fixed_batches(given, 2, tail="pad"))


def test_tensors_as_arrays_keep_their_kind() -> None:
    rows, targets = dataset(5).tensors
    ((inputs, _, weights),) = fixed_batches(
        (rows, targets, torch.tensor([1, 2, 3, 4, 5])), 10, tail="pad"
    )

    assert weights.tolist() == [2, 4, 6, 8, 10, 0, 0, 0, 0, 0]
    assert isinstance(inputs, torch.Tensor)
    np.testing.assert_array_equal(inputs[5:], rows)
