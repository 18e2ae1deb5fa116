"""The tags in a custom JAX loop, which need not wait for its device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.loops.builders_loops import Sleeps, finds_wait, stretch
from trainer_hooks import phase, step, timed

pytestmark = pytest.mark.keras_jax

STEPS = 50


def batches(waits: Sleeps) -> Iterator[Any]:
    import numpy as np

    random = np.random.default_rng(4)
    for _ in range(STEPS):
        waits()
        yield random.normal(size=(8, 4)).astype("float32")


def train(source: Any, computes: Sleeps | None = None) -> list[float]:
    """Fit a line; each step takes so long on the device."""
    import jax
    import jax.numpy as jnp

    def on_device(rows: Any) -> Any:
        if computes is not None:
            computes()
        return rows

    def loss_of(weights: Any, rows: Any) -> Any:
        return jnp.square(rows @ weights - rows.sum(1)).mean()

    def train_step(weights: Any, rows: Any) -> Any:
        rows = jax.pure_callback(on_device, jax.ShapeDtypeStruct(rows.shape, rows.dtype), rows)
        return weights - 0.1 * jax.grad(loss_of)(weights, rows)

    compiled = jax.jit(train_step)
    weights = jnp.zeros(4)
    for number, rows in enumerate(source):
        with phase("train_step" if number else "compile"):
            weights = compiled(weights, rows)
        step(samples=len(rows))
    with phase("device_sync"):
        return [float(weight) for weight in weights]


class TestALoopInJax:
    @pytest.mark.measured
    def test_has_its_steps_and_waits_recorded_and_its_result_unchanged(self) -> None:
        waits, computes = Sleeps(0.006), Sleeps(0.004)
        with stretch() as found:
            weights = train(timed(batches(waits)), computes)

        seen = found[0].phase_ns
        busy_ns = seen["train_step"] + seen["device_sync"] + seen["compile"]
        assert (found[0].after.steps, found[0].after.samples) == (STEPS, STEPS * 8)
        assert finds_wait(found[0], waits.spent_ns, steps=STEPS)
        assert seen["compile"] > 0
        # The device did the rest while the loop waited for its input.
        assert computes.times == STEPS
        assert busy_ns + waits.spent_ns >= 0.9 * computes.spent_ns
        assert weights == train(batches(Sleeps()))
