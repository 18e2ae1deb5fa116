"""Specification of fixed_batches on tf.data."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.keras.later import tf
from trainer_hooks.batches import fixed_batches

pytestmark = pytest.mark.keras_tensorflow


def rows_and_targets(count: int) -> tuple[Any, Any]:
    rows = np.arange(3 * count, dtype="float32").reshape(count, 3)
    return rows, rows.sum(1)


def samples(count: int) -> Any:
    return tf.data.Dataset.from_tensor_slices(rows_and_targets(count))


def numbers(batches: Any) -> list[list[int]]:
    """Which samples stand in which batch."""
    return [(batch[0].numpy()[:, 0] / 3).astype(int).tolist() for batch in batches]


class TestADatasetOfSamples:
    @pytest.mark.parametrize(
        ("tail", "last"), [("drop", []), ("repeat", [[4, 5, 6, 4]]), ("pad", [[4, 5, 6, 4]])]
    )
    def test_is_batched(self, tail: str, last: list[list[int]]) -> None:
        batches = fixed_batches(samples(7), 4, tail=tail)

        assert numbers(batches) == [[0, 1, 2, 3], *last]
        assert int(batches.cardinality()) == 1 + len(last)
        assert [spec.shape[0] for spec in batches.element_spec] == [4] * len(batches.element_spec)

    def test_scalars_are_treated_as_samples(self) -> None:
        batches = fixed_batches(tf.data.Dataset.range(5), 2, tail="repeat")

        assert [batch.numpy().tolist() for batch in batches] == [[0, 1], [2, 3], [4, 4]]

    def test_may_be_dicts_and_ragged(self) -> None:
        ragged = tf.ragged.constant([[1], [2, 3], [4, 5, 6]])
        data = tf.data.Dataset.from_tensor_slices({"x": ragged, "y": [0.0, 1.0, 2.0]})

        *_, last = fixed_batches(data, 2, tail="repeat")

        assert last["x"].to_list() == [[4, 5, 6], [4, 5, 6]]


class TestADatasetOfBatches:
    @pytest.mark.parametrize("size", [2, 3, 5, 7])
    def test_is_batched_again(self, size: int) -> None:
        batches = fixed_batches(samples(8).batch(size), 4, tail="repeat")

        assert numbers(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]

    def test_knows_its_length_where_its_source_does(self) -> None:
        cached = samples(7).batch(3).cache().prefetch(1)
        stepwise = samples(7).batch(2, drop_remainder=True).map(lambda rows, sums: (rows, sums))

        assert int(fixed_batches(cached, 4, tail="pad").cardinality()) == 2
        assert int(fixed_batches(cached, 4).cardinality()) == 1
        assert int(fixed_batches(stepwise, 4, tail="pad").cardinality()) == 2
        assert int(fixed_batches(cached.repeat(), 4).cardinality()) == tf.data.INFINITE_CARDINALITY

    def test_length_is_unknown_after_a_map_that_may_change_it(self) -> None:
        doubled = samples(7).batch(4).map(lambda x, y: (tf.repeat(x, 2, 0), tf.repeat(y, 2)))

        batches = fixed_batches(doubled, 4, tail="pad")

        assert int(batches.cardinality()) == tf.data.UNKNOWN_CARDINALITY
        assert len(list(batches)) == 4

    def test_is_padded_as_arrays_are(self) -> None:
        rows, sums = rows_and_targets(7)
        steps = np.ones((7, 2, 1), "float32")
        plain = ({"a": rows}, {"one": sums, "two": steps})
        weighted = (*plain, {"one": sums.astype(int), "two": steps})
        source = tf.data.Dataset.from_tensor_slices

        for reduction, data, dataset in (
            ("mean", plain, source(plain).batch(3)),
            ("sum", weighted, source(weighted)),
        ):
            here = fixed_batches(dataset, 4, tail="pad", reduction=reduction)
            there = fixed_batches(data, 4, tail="pad", reduction=reduction)
            for one, other in itertools.zip_longest(here, there):
                tf.nest.map_structure(np.testing.assert_allclose, one, other)
                assert one[2]["two"].shape == ((4, 1, 1) if data is plain else (4, 2, 1))

    def test_may_be_empty_or_endless(self) -> None:
        for tail in ("drop", "repeat", "pad"):
            empty = fixed_batches(samples(7).take(0).batch(3), 4, tail=tail)
            assert (list(empty), int(empty.cardinality())) == ([], 0)
            endless = fixed_batches(samples(7).batch(3).repeat(), 4, tail=tail)
            assert len(numbers(endless.take(5))) == 5


class TestAnUnclearDataset:
    def test_rows_of_equal_length_are_refused(self) -> None:
        rows = np.zeros((6, 3), "float32")
        unclear = tf.data.Dataset.from_tensor_slices((rows, rows))

        with pytest.raises(ValueError, match=r"\.unbatch\(\)"):
            fixed_batches(unclear, 3)
        for clear in (unclear.batch(2, drop_remainder=True), unclear.batch(2)):
            (first, *_) = fixed_batches(clear, 3)
            assert first[0].shape == (3, 3)

    def test_sparse_tails_or_missing_targets_are_refused(self) -> None:
        sparse = tf.sparse.from_dense([[1.0, 0.0]] * 3)
        data = tf.data.Dataset.from_tensor_slices((sparse, [1.0, 2.0, 3.0]))

        assert len(list(fixed_batches(data, 2))) == 1
        with pytest.raises(ValueError, match="sparse tensors"):
            fixed_batches(data, 2, tail="repeat")
        with pytest.raises(ValueError, match="no targets"):
            fixed_batches(tf.data.Dataset.range(5), 2, tail="pad")
