"""Specification of fixed_batches under Keras' fit, on each backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.keras.later import batch_builders, keras, tf, torch
from trainer_hooks.batches import fixed_batches
from trainer_hooks.prefetch import prefetch_to_device

TAILS = ["drop", "repeat", "pad"]
ON_EACH = ("arrays", "a list", "a PyDataset", "workers", "a generator")
KINDS = {
    "jax": ON_EACH,
    "tensorflow": (*ON_EACH, "tf.data", "tf.data, prefetched"),
    "torch": (
        *ON_EACH, "a loader", "a loader, prefetched", "workers of a loader",
        "workers of a loader, prefetched", "a stream",
    ),
}  # fmt: skip
"""What batches may be made of."""


of_each = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=getattr(pytest.mark, f"keras_{backend}"))
        for backend, kinds in KINDS.items()
        for kind in kinds
    ],
)


def whole_batches(kind: str, count: int, tail: str) -> Any:
    """Of 8, of so many samples."""
    samples = batch_builders.rows_and_targets(count)
    kind, _, is_ahead = kind.partition(", ")
    made: dict[str, Callable[[], Any]] = {
        "arrays": lambda: samples,
        "a list": lambda: [
            tuple(part[at : at + 5] for part in samples) for at in range(0, count, 5)
        ],
        "a PyDataset": lambda: batch_builders.Source(count, 8),
        "workers": lambda: batch_builders.Source(count, 8, workers=2),
        "a generator": lambda: batch_builders.iter_once(samples),
        "tf.data": lambda: tf.data.Dataset.from_tensor_slices(samples).batch(5),
        "a loader": lambda: loader_of(samples),
        "workers of a loader": lambda: loader_of(samples, num_workers=1),
        "a stream": lambda: torch.utils.data.DataLoader(a_stream_of(samples), batch_size=5),
    }
    batches = fixed_batches(made[kind](), 8, tail=tail)
    device = "CPU:0" if kind == "tf.data" else "cpu"
    return prefetch_to_device(batches, device=device) if is_ahead else batches


def loader_of(samples: Any, **arguments: Any) -> Any:
    of_torch = torch.utils.data.TensorDataset(*map(torch.from_numpy, samples))
    return torch.utils.data.DataLoader(of_torch, batch_size=5, **arguments)


def a_stream_of(samples: Any) -> Any:
    rows = {"__iter__": lambda _: zip(*samples, strict=True)}
    return type("Stream", (torch.utils.data.IterableDataset,), rows)()


@pytest.mark.usefixtures("each_backend")
class TestRow6BatchNormAfterAnOddLastBatch:
    """Acceptance row 6: N % batch != 0."""

    def test_has_nan_in_its_moving_statistics_without_us(self) -> None:
        model = batch_builders.a_model(batch_builders.Towers())
        model.fit(*batch_builders.rows_and_targets(9), batch_size=4, verbose=0)

        assert np.isnan(batch_builders.moving_statistics(model)).any()

    @pytest.mark.versions
    @pytest.mark.parametrize("tail", TAILS)
    def test_row_6_has_no_nan(self, tail: str) -> None:
        model = batch_builders.a_model(batch_builders.Towers())
        batches = fixed_batches(batch_builders.rows_and_targets(9), 4, multiple_of=2, tail=tail)
        history = model.fit(batches, epochs=2, verbose=0)

        assert np.isnan(batch_builders.moving_statistics(model)).sum() == 0
        assert np.isfinite(history.history["loss"]).all()
        assert np.isfinite(model.predict(batch_builders.rows_and_targets(9)[0], verbose=0)).all()


@pytest.mark.usefixtures("each_backend")
class TestAPaddedBatch:
    """Loss and update equal those of the short batch of real samples."""

    @pytest.mark.parametrize("loss", ["sum_over_batch_size", "mean_with_sample_weight", "sum"])
    def test_trains_as_its_real_samples_alone(self, loss: str) -> None:
        def after(data: Any) -> tuple[Any, float]:
            # A sum over samples needs a smaller step to stay where float32 is precise.
            model = batch_builders.a_model(
                loss=keras.losses.MeanSquaredError(reduction=loss), rate=0.02
            )
            history = model.fit(data, verbose=0)
            return model.get_weights(), history.history["loss"][0]

        short, reduction = batch_builders.rows_and_targets(3), "sum" if loss == "sum" else "mean"
        bare, bare_loss = after(batch_builders.iter_once(short))
        padded, padded_loss = after(fixed_batches(short, 8, tail="pad", reduction=reduction))
        repeated, _ = after(fixed_batches(short, 8, tail="repeat"))

        assert padded_loss == pytest.approx(bare_loss, rel=1e-6)
        for one, other in zip(padded, bare, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
        assert not np.allclose(repeated[0], bare[0], atol=1e-4)  # the test can tell

    def test_several_outputs_and_own_weights_train_as_real_samples_alone(self) -> None:
        rows, targets = batch_builders.rows_and_targets(5)
        weights = np.array([1, 2, 0, 1, 3], "float32")
        twice = {"one": targets, "two": np.repeat(targets[:, None], 4, 1)}

        def after(data: Any) -> tuple[Any, float]:
            keras.utils.set_random_seed(1)
            inputs = keras.Input((3,))
            steps = keras.layers.RepeatVector(4)(inputs)
            outputs = {
                "one": keras.layers.Dense(1, name="one")(inputs),
                "two": keras.layers.Dense(1, name="two")(steps),
            }
            model = keras.Model(inputs, outputs)
            eagerly = keras.backend.backend() == "tensorflow"  # which takes long to trace
            losses = {"one": "mse", "two": "mae"}
            model.compile(optimizer="sgd", loss=losses, run_eagerly=eagerly)
            return model.get_weights(), model.fit(data, verbose=0).history["loss"][0]

        each = {"one": weights, "two": weights[:, None]}
        bare, bare_loss = after(batch_builders.iter_once((rows, twice, each)))
        padded, padded_loss = after(fixed_batches((rows, twice, each), 8, tail="pad"))
        unweighted, unweighted_loss = after(fixed_batches((rows, twice), 8, tail="pad"))
        plain, plain_loss = after(batch_builders.iter_once((rows, twice)))

        assert (padded_loss, unweighted_loss) == pytest.approx((bare_loss, plain_loss), rel=1e-6)
        for one, other in zip([*padded, *unweighted], [*bare, *plain], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)


@of_each
class TestEachKindOfData:
    def test_is_trained_on_in_complete_batches_and_not_evaluated_with_copies(
        self, kind: str
    ) -> None:
        """As data of ``evaluate`` or validation data: the copies would be counted as samples."""
        seen, batches, model = (
            batch_builders.Steps(),
            whole_batches(kind, 18, "pad"),
            batch_builders.a_model(rate=1e-6),
        )
        epochs = 1 if kind == "a generator" else 2

        model.fit(batches, epochs=epochs, verbose=0, callbacks=[seen])
        assert seen.steps == [3] * epochs
        for tail in ("repeat", "pad"):
            with pytest.raises(Exception, match=r"evaluate would"):
                batch_builders.a_model().evaluate(whole_batches(kind, 18, tail), verbose=0)
        if kind != "a generator":
            with pytest.raises(ValueError, match="evaluate would"):
                model.fit(*batch_builders.rows_and_targets(8), validation_data=batches, verbose=0)
            model.fit(batches, verbose=0)

    def test_may_be_evaluated_where_it_needs_no_copies(self, kind: str) -> None:
        model = batch_builders.a_model()
        bare = model.evaluate(*batch_builders.rows_and_targets(16), verbose=0)

        recorded = model.evaluate(whole_batches(kind, 16, "pad"), verbose=0)

        assert recorded == pytest.approx(bare, rel=1e-5)


@pytest.mark.usefixtures("each_backend")
def test_a_callback_may_train_on_copies_within_evaluate() -> None:
    model, other = batch_builders.a_model(), batch_builders.a_model()
    trains = keras.callbacks.LambdaCallback(
        on_test_end=lambda logs: other.fit(whole_batches("arrays", 18, "pad"), verbose=0)
    )

    model.evaluate(*batch_builders.rows_and_targets(18), callbacks=[trains], verbose=0)

    assert not np.allclose(other.get_weights()[0], model.get_weights()[0])


@pytest.mark.keras_jax
class TestAPyDataset:
    @pytest.mark.versions
    def test_becomes_one_with_its_workers(self) -> None:
        source = batch_builders.Source(18, 8, workers=2, max_queue_size=3)
        batches = fixed_batches(source, 8, tail="pad")
        batch_builders.a_model().fit(batches, epochs=2, verbose=0)

        assert isinstance(batches, keras.utils.PyDataset)
        assert (batches.workers, batches.max_queue_size) == (2, 3)
        assert source.threads - {threading.main_thread().name}  # who else asked for batches
        assert source.ended >= 2

    def test_is_read_once_an_epoch_where_its_batches_have_the_right_size(self) -> None:
        source = batch_builders.Source(18, 8)
        batches = fixed_batches(source, 8, tail="repeat")
        assert len(batches) == 3
        source.asked.clear()

        assert [len(batches[index][0]) for index in range(3)] == [8, 8, 8]
        assert source.asked == [0, 1, 2]

    def test_batches_of_another_size_are_split_and_joined_in_order(self) -> None:
        source = batch_builders.Source(18, 8)

        for size, tail, count in ((4, "repeat", 5), (12, "drop", 1), (6, "drop", 3)):
            batches = fixed_batches(source, size, tail=tail)
            seen = np.concatenate([batches[index][0] for index in range(len(batches))])

            assert len(batches) == count
            whole = min(18, count * size)
            np.testing.assert_array_equal(seen[:whole], source.rows[:whole])

    def test_without_an_end_stays_so(self) -> None:
        class Endless(batch_builders.Source):
            num_batches = None

        batches = fixed_batches(Endless(64, 8), 8)
        history = batch_builders.a_model().fit(batches, steps_per_epoch=2, epochs=2, verbose=0)

        assert batches.num_batches is None
        assert len(history.history["loss"]) == 2

    def test_without_a_batch_has_none(self) -> None:
        assert len(fixed_batches(batch_builders.Source(0, 8), 8)) == 0
        assert len(fixed_batches(batch_builders.Source(5, 8), 8)) == 0  # its only one is short


@pytest.mark.keras_jax
def test_an_iterable_without_a_length_is_trained_on_for_ever() -> None:
    rows, targets = batch_builders.rows_and_targets(12)

    class Iterable:
        def __iter__(self) -> Any:
            return iter([(rows[:5], targets[:5]), (rows[5:], targets[5:])])

    batches, seen = fixed_batches(Iterable(), 4), batch_builders.Steps()
    batch_builders.a_model().fit(
        batches.forever(), steps_per_epoch=3, epochs=3, verbose=0, callbacks=[seen]
    )

    assert seen.steps == [3, 3, 3]
