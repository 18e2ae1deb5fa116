"""A Keras model on torch whose steps note when they ran."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import keras

from trainer_hooks.examples.busy_spans import SpanNotes


class MeasuredModel(keras.Sequential):  # type: ignore[misc]  # Keras has no types
    """The notes are right before the forward pass and right after the optimizer.

    On a CPU torch computes as it goes, so these are the ends of the compute.
    No hook of Keras takes part.
    """

    def __init__(self, layers: Sequence[keras.Layer], spans: SpanNotes) -> None:
        super().__init__(layers)
        self._spans = spans

    def train_step(self, data: Any) -> Any:
        """Keras' own step: forward, backward and the optimizer."""
        start_ns = time.monotonic_ns()
        logs = super().train_step(data)
        self._spans.note(start_ns, time.monotonic_ns())
        return logs

    def test_step(self, data: Any) -> Any:
        """The same for a batch of validation."""
        start_ns = time.monotonic_ns()
        logs = super().test_step(data)
        self._spans.note(start_ns, time.monotonic_ns())
        return logs
