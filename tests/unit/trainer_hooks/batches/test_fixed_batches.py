"""``fixed_batches`` without a framework: arrays, sequences and streams."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.batches import fixed_batches
from trainer_hooks.batches.rebatching import FixedBatches


def samples(count: int) -> tuple[Any, Any]:
    """Rows and targets that contain their index."""
    rows = np.arange(count)
    return np.stack([rows, rows], axis=1).astype("float32"), rows.astype("float32")


def in_batches(count: int, size: int) -> list[tuple[Any, Any]]:
    rows, targets = samples(count)
    return [(rows[at : at + size], targets[at : at + size]) for at in range(0, count, size)]


def targets_of(batches: Any) -> list[list[float]]:
    return [batch[1].tolist() for batch in batches]


@pytest.fixture(autouse=True)
def no_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Keras imported, arrays would become a PyDataset."""
    monkeypatch.setitem(sys.modules, "keras", None)


class TestAShortLastBatch:
    @pytest.mark.parametrize(
        ("samples_given", "tail", "last"),
        [
            (7, "drop", [0, 1, 2, 3]),
            (7, "repeat", [4, 5, 6, 4]),
            (5, "repeat", [4, 4, 4, 4]),
            (8, "drop", [4, 5, 6, 7]),
            (8, "repeat", [4, 5, 6, 7]),
            (8, "pad", [4, 5, 6, 7]),
        ],
    )
    def test_is_dropped_or_filled_up_with_its_own_samples(
        self, samples_given: int, tail: str, last: list[int]
    ) -> None:
        batches = fixed_batches(samples(samples_given), 4, tail=tail)

        assert targets_of(batches)[-1] == last
        assert {len(batch) for batch in batches} == {3 if tail == "pad" else 2}  # with weights

    def test_is_padded_with_samples_of_weight_0(self) -> None:
        first, last = fixed_batches(samples(7), 4, tail="pad")

        assert first[2].tolist() == [1, 1, 1, 1]
        assert last[1].tolist() == [4, 5, 6, 4]
        assert last[2].tolist() == pytest.approx([4 / 3, 4 / 3, 4 / 3, 0])
        assert last[2].dtype == np.float32

    def test_keeps_the_weights_of_real_samples_for_losses_that_are_sums(self) -> None:
        *_, last = fixed_batches(samples(7), 4, tail="pad", reduction="sum")

        assert last[2].tolist() == [1, 1, 1, 0]


class TestGivenWeights:
    def test_are_kept(self) -> None:
        rows, targets = samples(6)
        weights = np.array([1, 2, 3, 4, 5, 6])

        dropped = [batch[2].tolist() for batch in fixed_batches((rows, targets, weights), 4)]
        _, last = fixed_batches((rows, targets, weights), 4, tail="repeat")

        assert dropped == [[1, 2, 3, 4]]
        assert last[2].tolist() == [5, 6, 5, 6]

    def test_are_scaled_and_padded_by_step_and_by_output(self) -> None:
        rows, targets = samples(3)
        weights = {"by_step": np.array([[1, 2], [3, 4], [5, 6]]), "plain": None}

        outputs = {"by_step": np.zeros((3, 2, 1)), "plain": targets}
        ((_, _, padded),) = fixed_batches((rows, outputs, weights), 6, tail="pad")

        assert padded["by_step"].tolist() == [[2, 4], [6, 8], [10, 12], [0, 0], [0, 0], [0, 0]]
        assert padded["plain"].tolist() == [2, 2, 2, 0, 0, 0]


class TestArrays:
    def test_may_be_nested(self) -> None:
        rows, targets = samples(5)
        data = ({"a": rows, "b": [rows, targets]}, {"out": targets})

        batches = fixed_batches(data, 2)

        assert len(batches) == 2
        assert batches[1][0]["b"][1].tolist() == [2, 3]
        assert batches[1][1]["out"].tolist() == [2, 3]

    def test_can_be_iterated_over_again_and_indexed(self) -> None:
        batches = fixed_batches(samples(6), 2)

        assert targets_of(batches) == targets_of(batches)
        assert batches[2][1].tolist() == [4, 5]
        with pytest.raises(IndexError):
            batches[3]

    def test_are_shuffled_each_epoch_on_request(self) -> None:
        np.random.seed(1)
        batches = fixed_batches(samples(64), 8, tail="repeat", shuffle=True)

        epochs = [list(itertools.chain(*targets_of(batches))) for _ in range(2)]

        assert epochs[0] != epochs[1]
        assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(64))


class TestAGenerator:
    def test_becomes_a_generator(self) -> None:
        batches = fixed_batches((batch for batch in in_batches(7, 3)), 2, tail="repeat")

        assert isinstance(batches, GeneratorType)
        assert targets_of(batches) == [[0, 1], [2, 3], [4, 5], [6, 6]]

    def test_may_be_endless_and_is_read_only_as_needed(self) -> None:
        read = []

        def endless() -> Iterator[tuple[Any, Any]]:
            for number in itertools.count():
                read.append(number)
                yield samples(2)

        batches = fixed_batches(endless(), 4, tail="pad")

        assert len(list(itertools.islice(batches, 3))) == 3
        assert len(read) == 6

    def test_batches_of_the_right_size_are_unchanged(self) -> None:
        given = in_batches(8, 4)

        passed_on = fixed_batches(iter(given), 4)

        assert all(after is before for after, before in zip(passed_on, given, strict=True))

    @pytest.mark.parametrize("tail", ["drop", "repeat", "pad"])
    def test_may_be_empty(self, tail: str) -> None:
        assert list(fixed_batches(iter([]), 4, tail=tail)) == []
        assert list(fixed_batches([], 4, tail=tail)) == []
        assert list(FixedBatches([], fixed_batches({}.values(), 4)._rule).forever()) == []


class TestOtherIterables:
    def test_a_list_of_batches_has_a_length_and_indices(self) -> None:
        batches = fixed_batches(in_batches(7, 3), 2, tail="repeat")

        assert len(batches) == 4
        assert batches[1][1].tolist() == [2, 3]
        assert targets_of(batches) == [[0, 1], [2, 3], [4, 5], [6, 6]]

    def test_a_list_of_batches_of_different_sizes_is_refused(self) -> None:
        uneven = [samples(3), samples(2), samples(3)]

        with pytest.raises(ValueError, match="batch 1 "):
            list(fixed_batches(uneven, 3))

    def test_an_iterable_may_be_iterated_over_again_and_forever(self) -> None:
        class Source:
            def __iter__(self) -> Iterator[tuple[Any, Any]]:
                return iter(in_batches(5, 2))

        batches = fixed_batches(Source(), 2)

        assert isinstance(batches, FixedBatches)
        assert targets_of(batches) == targets_of(batches) == [[0, 1], [2, 3]]
        assert isinstance(batches.forever(), GeneratorType)
        assert targets_of(itertools.islice(batches.forever(), 3)) == [[0, 1], [2, 3], [0, 1]]


class TestMisuse:
    @pytest.mark.parametrize(
        ("data", "arguments", "reason"),
        [
            (samples(8), {"batch_size": 10, "multiple_of": 4}, "8 or 12$"),
            (samples(8), {"batch_size": 3, "multiple_of": 4}, "such as 4$"),
            (samples(8), {"tail": "fill"}, "^tail .*'fill'"),
            (samples(8), {"reduction": "none"}, "^reduction .*'none'"),
            (iter([]), {"shuffle": True}, "^shuffle=True"),
            ((np.zeros(3), np.zeros(4)), {}, r"\[3, 4\]"),
        ],
    )
    def test_is_refused(self, data: Any, arguments: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            fixed_batches(data, **{"batch_size": 4, **arguments})

    @pytest.mark.parametrize("data", [np.zeros(3), ({"x": np.zeros(3)},), (np.zeros(3), None)])
    def test_padding_without_targets_is_refused(self, data: Any) -> None:
        with pytest.raises(ValueError, match="no targets"):
            list(fixed_batches(data, 4, tail="pad"))

    @pytest.mark.parametrize("size", [0, -1, 2.5, "8", True, None])
    def test_an_invalid_size_is_refused(self, size: Any) -> None:
        for arguments in ({"batch_size": size}, {"batch_size": 8, "multiple_of": size}):
            with pytest.raises(ValueError, match=f"^{[*arguments][-1]} .* {size!r}"):
                fixed_batches(samples(8), **arguments)

    @pytest.mark.parametrize(
        "data", [None, 3, "rows", b"rows", {"x": [1, 2]}, ([1], [2]), object()]
    )
    def test_data_of_another_kind_are_refused(self, data: Any) -> None:
        with pytest.raises(ValueError, match=type(data).__name__):
            fixed_batches(data, 4)

    @pytest.mark.parametrize("target", [1.0, np.float32(1.0)], ids=["a number", "of NumPy"])
    def test_samples_instead_of_batches_are_refused(self, target: Any) -> None:
        with pytest.raises(ValueError, match="single samples"):
            list(fixed_batches(iter([(np.zeros(4), target)]), 4))


class TestLaws:
    @given(
        sizes=st.lists(st.integers(0, 7), max_size=8),
        size=st.integers(1, 9),
        tail=st.sampled_from(["drop", "repeat", "pad"]),
    )
    def test_all_batches_are_full_and_no_sample_is_lost(
        self, sizes: list[int], size: int, tail: str
    ) -> None:
        ends = list(itertools.accumulate(sizes, initial=0))
        rows, targets = samples(ends[-1])
        source = [(rows[a:b], targets[a:b]) for a, b in itertools.pairwise(ends)]

        found = list(fixed_batches(iter(source), size, tail=tail))
        seen = [number for batch in found for number in batch[1].tolist()]

        assert {len(batch[0]) for batch in found} <= {size}
        whole = ends[-1] // size * size
        assert seen[:whole] == list(range(whole))
        assert set(seen) == set(range(whole if tail == "drop" else ends[-1]))
        if tail == "pad" and found:
            assert sum(batch[2].sum() for batch in found) == pytest.approx(size * len(found))
