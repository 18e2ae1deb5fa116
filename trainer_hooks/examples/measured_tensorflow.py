"""A Keras model on TensorFlow whose compiled steps note, from inside, when they ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer_hooks.examples.busy_spans import SpanNotes
from trainer_hooks.examples.step_noter import StepNoter


class MeasuredModel(keras.Sequential):  # type: ignore[misc]  # Keras has no types
    """The notes are Python operations in the graph of the step.

    The first needs the batch, the last every updated weight. No hook of Keras
    takes part.
    """

    def __init__(self, layers: Sequence[keras.Layer], spans: SpanNotes) -> None:
        super().__init__(layers)
        self._noter = StepNoter(spans)

    def compile(self, *words: Any, **named: Any) -> None:
        """As Keras does, but without XLA, which knows no Python operations."""
        super().compile(*words, **{**named, "jit_compile": False})

    def train_step(self, data: Any) -> Any:
        """Keras' own step between two notes."""
        logs = super().train_step(self._begun(data))
        # Reading a variable comes after what the step assigned to it.
        touched = [tf.reshape(weights.value, [-1])[0] for weights in self.trainable_variables]
        return self._ended(logs, touched)

    def test_step(self, data: Any) -> Any:
        """The same for a batch of validation."""
        return self._ended(super().test_step(self._begun(data)), [])

    def _begun(self, data: Any) -> Any:
        rows, *others = data
        begun = tf.numpy_function(self._noter.begin, [rows], rows.dtype)
        begun.set_shape(rows.shape)
        return (begun, *others)

    def _ended(self, logs: Any, touched: list[Any]) -> Any:
        loss = tf.numpy_function(self._noter.end, [logs["loss"], *touched], tf.float32)
        loss.set_shape(())
        return {**logs, "loss": loss}
