"""The parts of a batch: the same as everywhere in gpumon, and changeable between steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import split_counts
from tests.multi_gpu.later import builders, multi_gpu, tf

pytestmark = pytest.mark.multi_gpu

slowly = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class TestTheSplitInTheGraph:
    @given(st.integers(1, 3_000), st.lists(st.integers(1, 2_000), min_size=1, max_size=6))
    @slowly
    def test_is_that_of_the_core(self, size: int, ratios: list[int]) -> None:
        from trainer_hooks.multi_gpu.batch_split import BatchSplit

        slices = BatchSplit(ratios).slices(tf.constant(size, tf.int64))

        assert tuple(slices.counts.numpy()) == split_counts(size, ratios)

    @given(st.integers(1, 300), st.lists(st.floats(0.01, 100.0), min_size=1, max_size=6))
    @slowly
    def test_gives_the_replicas_consecutive_rows(self, size: int, ratios: list[float]) -> None:
        from trainer_hooks.multi_gpu.batch_split import BatchSplit, parts_of

        split, rows = BatchSplit(ratios), tf.range(size)
        slices = split.slices_of(rows)
        parts = [part.numpy() for part, _ in parts_of(rows, slices, len(ratios))]

        given_out = [p[:n] for p, n in zip(parts, slices.counts.numpy(), strict=True)]
        assert np.concatenate(given_out).tolist() == list(range(size))
        assert min(len(part) for part in parts) >= 1
        assert float(tf.reduce_sum(slices.weights)) == pytest.approx(1.0)

    def test_gives_a_borrowed_sample_weight_0(self) -> None:
        """Row 2 of the acceptance table: [4, 3, 2] of 2 feeds no empty part."""
        from trainer_hooks.multi_gpu.batch_split import BatchSplit

        slices = BatchSplit([4, 3, 2]).slices(tf.constant(2, tf.int64))

        assert slices.counts.numpy().tolist() == [1, 1, 0]
        assert slices.lengths.numpy().tolist() == [1, 1, 1]
        assert slices.weights.numpy().tolist() == [0.5, 0.5, 0.0]
        assert slices.is_fed.numpy().tolist() == [1.0, 1.0, 0.0]


class TestTheRows:
    @pytest.mark.parametrize(
        ("size", "ratios", "counts"),
        [(100, [768, 560], [58, 42]), (1388, [820, 568], [820, 568]), (1000, [3, 2], [600, 400])],
    )
    def test_split_of_the_article_arrives_on_each_device(
        self, size: int, ratios: list[int], counts: list[int]
    ) -> None:
        """Row 1 of the acceptance table, as seen by the layers."""
        model = builders.parallel(
            builders.only_dropout(), devices=builders.DEVICES[:2], ratios=ratios
        )
        model.compile(optimizer="sgd", loss="mse")

        seen = builders.seen_in_training(model, np.ones((size, 64), "float32"))

        assert [len(rows) for rows in seen] == counts


class TestRatios:
    def test_may_change_between_steps_without_retracing(self) -> None:
        model = builders.parallel(builders.dense(), devices=builders.DEVICES[:2], ratios=[1, 1])
        model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
        x, y, _ = builders.rows(28)
        traces, step = [], model.train_step

        def counted(data: Any) -> Any:
            traces.append(data)
            return step(data)

        model.train_step = counted
        model.time_replicas()
        model.train_on_batch(x, y)
        model.replica_times()

        given_out = []
        for ratios in ([3, 1], [1, 6], [0.5, 0.25], [2, 5]):
            model.ratios = ratios
            model.train_on_batch(x, y)
            given_out.append(list(model.replica_times()[-1].samples))

        assert given_out == [[21, 7], [4, 24], [19, 9], [8, 20]]
        assert model.ratios == (2, 5)
        assert len(traces) == 1


class TestEqualShares:
    def test_are_those_of_the_second_article(self) -> None:
        rows = np.arange(10)

        parts = [multi_gpu.slice_batch(rows, 3, part).tolist() for part in range(3)]

        assert parts == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
        with pytest.raises(ValueError, match="part 3 of 3"):
            multi_gpu.slice_batch(rows, 3, 3)
