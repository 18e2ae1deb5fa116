"""Specification of shares: complete batches, no GPU without a sample, balancing ratios."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import (
    balanced_ratios,
    checked_ratios,
    shares_of,
    split_counts,
)

ratio_lists = st.lists(
    st.one_of(
        st.integers(1, 2_000),
        st.floats(1e-6, 1e6, allow_nan=False),
        st.sampled_from([1e-300, 1e300]),
    ),
    min_size=1,
    max_size=16,
)
batches = st.integers(0, 100_000)


class TestABatch:
    @pytest.mark.parametrize(
        ("total", "ratios", "counts"),
        [
            (100, [768, 560], (58, 42)),
            (1388, [820, 568], (820, 568)),
            (1000, [3, 2], (600, 400)),
            (128, [50, 50], (64, 64)),
            (100, [0.768, 0.56], (58, 42)),
            (7, [1, 1, 1], (3, 2, 2)),
            (2, [4, 3, 2], (1, 1, 0)),
            (0, [4, 3, 2], (0, 0, 0)),
            (3, [1_000, 1, 1], (1, 1, 1)),  # the slowest has one before the fastest has two
        ],
    )
    def test_is_split_by_its_ratios_and_too_few_samples_one_by_one(
        self, total: int, ratios: list[float], counts: tuple[int, ...]
    ) -> None:
        assert split_counts(total, ratios) == counts

    @given(batches, ratio_lists)
    def test_is_split_completely_and_leaves_no_gpu_empty_if_there_are_enough_samples(
        self, total: int, ratios: list[float]
    ) -> None:
        counts = split_counts(total, ratios)

        assert sum(counts) == total
        assert min(counts) >= (1 if total >= len(ratios) else 0)
        assert math.isclose(math.fsum(shares_of(ratios)), 1.0)

    @given(batches, st.lists(st.integers(1, 2_000), min_size=1, max_size=16))
    def test_is_split_within_one_sample_of_the_ratio_if_all_have_some(
        self, total: int, ratios: list[int]
    ) -> None:
        exact = [total * ratio / sum(ratios) for ratio in ratios]
        if min(exact, default=0) < 1:
            return

        counts = split_counts(total, ratios)

        assert all(abs(count - due) < 1 for count, due in zip(counts, exact, strict=True))


REFUSED: list[tuple[Any, str]] = [
    *(([1, bad], f"positive, finite.*{bad!r}") for bad in (0, -1, math.nan, math.inf, None, True)),
    *((few, f"{len(few)} for 2") for few in ([1], [1, 2, 3])),
    *((no_list, rf"{type(no_list).__name__}$") for no_list in (3, None, "3:2", {1: 3}, {3, 2})),
    (["3", 2], "quotes"),
]
"""Ratios for two GPUs, and what the message says of them."""


class TestRatios:
    @pytest.mark.parametrize(("ratios", "message"), REFUSED, ids=[repr(one) for one, _ in REFUSED])
    def test_are_refused_with_the_reason_if_invalid(self, ratios: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            checked_ratios(ratios, 2)

    @pytest.mark.parametrize(
        ("ratios", "sentence"),
        [
            (3, "with one number for each rank, in the order of ranks, such as"),
            ([3, 0], "0 is not one; start fewer ranks where one is to have nothing"),
        ],
    )
    def test_are_refused_for_ranks_without_mentioning_gpus(
        self, ratios: Any, sentence: str
    ) -> None:
        with pytest.raises(ValueError, match=sentence) as refused:
            checked_ratios(ratios, 2, each="rank")

        assert "gpu" not in str(refused.value).lower()


class TestBalancing:
    @given(
        st.lists(st.tuples(st.floats(1, 1e4), st.floats(1, 1e4)), min_size=2, max_size=8),
        st.integers(1, 10_000),
    )
    def test_gives_gpus_of_constant_speed_equal_busy_time(
        self, gpus: list[tuple[float, float]], steps: int
    ) -> None:
        ratios = [ratio for ratio, _ in gpus]
        speeds = [speed for _, speed in gpus]
        busy = [
            steps * share / speed for share, speed in zip(shares_of(ratios), speeds, strict=True)
        ]

        levelled = balanced_ratios(ratios, busy)

        assert levelled is not None
        again = [share / speed for share, speed in zip(levelled, speeds, strict=True)]
        assert max(again) == pytest.approx(min(again))

    def test_has_no_answer_for_a_gpu_that_was_never_busy(self) -> None:
        assert balanced_ratios([1, 1], [1.0, 0.0]) is None
        assert balanced_ratios([1, 1], [1.0, 5e-324]) is None  # so fast is no GPU
        assert balanced_ratios([1, 1], [1e-320, 1e-320]) is None
        assert balanced_ratios([], []) is None
