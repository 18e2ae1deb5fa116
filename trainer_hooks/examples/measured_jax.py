"""A Keras model on JAX whose compiled steps note, from inside, when they ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from trainer_hooks.examples.busy_spans import SpanNotes
from trainer_hooks.examples.step_noter import StepNoter

_SCALAR = jax.ShapeDtypeStruct((), jnp.float32)


class MeasuredModel(keras.Sequential):  # type: ignore[misc]  # Keras has no types
    """The notes are host callbacks within the compiled program.

    The first needs the batch, the last every updated weight. No hook of Keras
    takes part. JAX runs a program with host callbacks to its end before it
    goes on, so that here each step waits for its compute.
    """

    def __init__(self, layers: Sequence[keras.Layer], spans: SpanNotes) -> None:
        super().__init__(layers)
        self._noter = StepNoter(spans)

    def train_step(self, state: Any, data: Any) -> Any:
        """Keras' own step between two notes."""
        logs, state = super().train_step(state, self._begun(data))
        self._end(logs, [jnp.ravel(weights)[0] for weights in state[0]])
        return logs, state

    def test_step(self, state: Any, data: Any) -> Any:
        """The same for a batch of validation."""
        logs, state = super().test_step(state, self._begun(data))
        self._end(logs, [])
        return logs, state

    def _begun(self, data: Any) -> Any:
        rows, *others = data
        same = jax.ShapeDtypeStruct(rows.shape, rows.dtype)
        return (jax.pure_callback(self._noter.begin, same, rows), *others)

    def _end(self, logs: dict[str, Any], touched: list[Any]) -> None:
        logs["loss"] = jax.pure_callback(self._noter.end, _SCALAR, logs["loss"], *touched)
