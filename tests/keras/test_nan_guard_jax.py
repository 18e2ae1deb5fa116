"""NaNGuard on JAX, against truth from below: when the host could begin each step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.keras.later import batch_builders, builders, keras, nan_guard

pytestmark = pytest.mark.keras_jax


class TestATrainingThatRunsAhead:
    """On JAX the host runs ahead of the device, so waiting for a step would show."""

    @pytest.mark.measured
    def test_still_does_although_each_step_is_checked(self) -> None:
        guard = nan_guard.NaNGuard(every=1)
        if ahead_ratio() > 0.5:
            pytest.skip("this Keras waits for each step itself")

        # A check that reads the weights at once does wait: the test can tell.
        reads = builders.Does(
            lambda own: own.model.get_weights(), "on_train_batch_begin", async_safe=True
        )
        assert ahead_ratio(guard) < 0.5 < ahead_ratio(reads)
        assert guard.found is None


@pytest.mark.versions
@pytest.mark.parametrize(
    ("odd_batch", "batches"), [(8, "one of the batches 7 to 9"), (10, "batch 10 of")]
)
def test_several_steps_per_call_name_the_batches_of_the_call(odd_batch: int, batches: str) -> None:
    """They are counted to the end of the data, in the midst of a call."""
    rows, targets = batch_builders.rows_and_targets(40)
    rows[4 * odd_batch - 1] = float("inf")
    model = batch_builders.a_model()
    model.compile("sgd", "mse", steps_per_execution=3)

    with pytest.warns(RuntimeWarning, match=f"since {batches}"):
        model.fit(
            rows, targets, 4, shuffle=False, verbose=0, callbacks=[nan_guard.NaNGuard(every=1)]
        )


def ahead_ratio(*callbacks: Any) -> float:
    """When the last step of an epoch was begun, as a part of that epoch's time."""
    model = batch_builders.a_model(keras.layers.Lambda(batch_builders.slowly, output_shape=(3,)))
    methods = ("on_epoch_begin", "on_train_batch_begin", "on_epoch_end")
    seen = builders.Does(lambda _: None, *methods, async_safe=True)
    rows, targets = batch_builders.rows_and_targets(20)
    model.fit(rows, targets, 4, epochs=2, verbose=0, callbacks=[*callbacks, seen])
    began_ns, *_, last_ns, ended_ns = (at_ns for at_ns, _ in seen.spans_ns[seen.times // 2 :])
    return (last_ns - began_ns) / (ended_ns - began_ns)
