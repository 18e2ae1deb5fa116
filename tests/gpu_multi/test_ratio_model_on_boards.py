"""The ratio model on real GPUs: its weights, devices and collectives."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pytest

from tests.gpu_multi.conftest import MEASURED
from tests.imported_later import ImportedLater
from tests.multi_gpu.later import builders, keras, multi_gpu, tf

ran: Any = ImportedLater("tests.multi_gpu.operations_run")
bench: Any = ImportedLater("trainer_hooks.trainer_bench.keras_engine")

pytestmark = pytest.mark.gpu_multi
CLOSE = 1e-5
"""One GPU sums in another order than two."""
MIXED = 1e-2
ADDED = 0.03
STEPS, ROUNDS = 30, 5
PER_BOARD = 256


@pytest.fixture
def pair(boards: tuple[str, ...]) -> tuple[str, ...]:
    return boards[:2]


class TestTwoBoards:
    @pytest.mark.parametrize("ratios", [(1, 1), (4, 3)])
    def test_learn_evaluate_and_predict_like_one(
        self, pair: tuple[str, ...], ratios: tuple[int, ...]
    ) -> None:
        training = builders.Training(compiled={"optimizer": lambda: keras.optimizers.SGD(0.05)})
        with tf.device(pair[0]):
            alone = training.on(builders.dense())

        together = training.on(builders.parallel(builders.dense(), pair, ratios))

        furthest = together.furthest_from(alone)
        assert max(furthest.values()) <= CLOSE, furthest

    def test_learn_the_same_in_mixed_precision(self, pair: tuple[str, ...]) -> None:
        usual = keras.config.dtype_policy()
        keras.config.set_dtype_policy("mixed_float16")
        try:
            training = builders.Training()
            with tf.device(pair[0]):
                alone = training.on(builders.dense())
            together = training.on(builders.parallel(builders.dense(), pair, (4, 3)))
        finally:
            keras.config.set_dtype_policy(usual)

        assert together.furthest_from(alone)["weights"] <= MIXED

    def test_keep_batch_norm_finite_with_a_last_batch_of_one(self, pair: tuple[str, ...]) -> None:
        model = builders.parallel(builders.normalized(), pair, (4, 3))

        builders.Training().on(model)

        assert all(np.isfinite(weight).all() for weight in model.template.get_weights())

    def test_accept_new_ratios_without_a_new_trace(self, pair: tuple[str, ...]) -> None:
        x, y, _ = builders.rows(28)
        model = builders.parallel(builders.dense(), pair, (1, 1))
        model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
        model.fit(x, y, batch_size=28, verbose=0)

        def again() -> None:
            for ratios in ((4, 3), (1, 6), (3, 2)):
                model.ratios = ratios
                model.fit(x, y, batch_size=28, verbose=0)

        assert ran.computing(ran.operations_of(again)) == {}  # nothing ran for the first time


class TestEachBoard:
    def test_computes_its_part_and_the_host_computes_nothing(self, boards: tuple[str, ...]) -> None:
        found = ran.computing(ran.operations_of(lambda: trained_once(boards)))

        assert set(found) == set(boards)
        assert all(ways["forward"] and ways["backward"] for ways in found.values()), found

    def test_sums_gradients_by_nccl(self, boards: tuple[str, ...]) -> None:
        operations = ran.operations_of(lambda: trained_once(boards))

        reduces = [one for one in operations if one.kind.startswith("CollectiveReduce")]
        assert {one.device for one in reduces} == set(boards)
        assert {one.joined_by for one in reduces} == {"nccl"}


class TestTheEngine:
    def test_costs_at_most_3_percent_beyond_plain_mirrored_strategy(
        self, pair: tuple[str, ...], measured: MEASURED
    ) -> None:
        """The article's model, with equal parts, each strategy in turns."""
        with tf.distribute.MirroredStrategy(list(pair)).scope():
            plain = compiled(bench.maxing_net(bench.FULL))
        ours = compiled(builders.parallel(bench.maxing_net(bench.FULL), pair, None))
        for model in (plain, ours):
            fit_seconds(model, 2)  # is traced
        rounds = [(step_seconds(plain), step_seconds(ours)) for _ in range(ROUNDS)]

        plain_s, ours_s = (statistics.median(side) for side in zip(*rounds, strict=True))
        added = ours_s / plain_s - 1
        measured(
            f"ratio model beyond MirroredStrategy, a step of {plain_s * 1e3:.0f} ms",
            f"{added:+.1%}",
            f"at most {ADDED:.0%}",
        )
        assert added <= ADDED


class TestTheBalancer:
    def test_finds_a_split_at_least_as_fast_as_equal_parts(
        self, pair: tuple[str, ...], measured: MEASURED
    ) -> None:
        model = compiled(builders.parallel(bench.maxing_net(bench.FULL), pair, (3, 1)))
        balancer = multi_gpu.RatioBalancer(every=STEPS, verbose=0)
        fit_seconds(model, 2)  # is traced
        poor_s = step_seconds(model)

        fit_seconds(model, 10 * STEPS, callbacks=[balancer])

        found, rounds = model.ratios, []
        for _ in range(ROUNDS):
            model.ratios = found
            balanced_s = step_seconds(model)
            model.ratios = (1, 1)
            rounds.append((balanced_s, step_seconds(model)))
        balanced_s, even_s = (statistics.median(side) for side in zip(*rounds, strict=True))
        measured(
            f"step of {2 * PER_BOARD} samples: equal parts {even_s * 1e3:.1f} ms, 3:1 "
            f"{poor_s * 1e3:.1f} ms; from there the balancer came to {found}",
            f"{balanced_s * 1e3:.1f} ms",
            "at most that of equal parts, and 2 %",
        )
        assert balancer.changes
        assert balanced_s <= even_s * 1.02


def trained_once(boards: tuple[str, ...]) -> None:
    x, y, _ = builders.rows(9 * len(boards))
    model = builders.parallel(builders.dense(), boards, None)
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=len(x), verbose=0)


def compiled(model: Any) -> Any:
    model.compile(optimizer="adam", loss="categorical_crossentropy", jit_compile=False)
    return model


def step_seconds(model: Any) -> float:
    """A step of ``fit``, without what begins and ends each fit."""
    short, long = (fit_seconds(model, steps) for steps in (STEPS, 3 * STEPS))
    return (long - short) / (2 * STEPS)


def fit_seconds(model: Any, steps: int, callbacks: Any = None) -> float:
    batch = 2 * PER_BOARD
    x = np.zeros((batch, 28, 28, 1), "float32")
    y = np.eye(10, dtype="float32")[np.zeros(batch, int)]
    data = tf.data.Dataset.from_tensors((x, y)).repeat(steps).prefetch(2)
    began = time.perf_counter()
    model.fit(data, verbose=0, callbacks=callbacks)
    return time.perf_counter() - began
