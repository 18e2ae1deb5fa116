"""A Keras model on any backend whose steps note, from inside, when they ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import keras

from trainer_hooks.examples.busy_spans import SpanNotes
from trainer_hooks.examples.step_noter import (
    StepNoter,
    noted_in_jax,
    noted_in_tensorflow,
    noted_in_torch,
)

_NOTED_IN: Final = {
    "jax": noted_in_jax,
    "tensorflow": noted_in_tensorflow,
    "torch": noted_in_torch,
}


class MeasuredModel(keras.Sequential):  # type: ignore[misc]  # Keras has no types
    """Notes in each step of training or validation, between which is Keras' own.

    The first note needs the batch, the last every updated weight. No hook of Keras takes part.
    """

    def __init__(self, layers: Sequence[keras.Layer], spans: SpanNotes) -> None:
        super().__init__(layers)
        self._begin, self._end = _NOTED_IN[keras.backend.backend()](StepNoter(spans))

    def compile(self, *words: Any, **named: Any) -> None:
        """As Keras does, but on TensorFlow without XLA, which knows no Python operations."""
        if keras.backend.backend() == "tensorflow":
            named["jit_compile"] = False
        super().compile(*words, **named)

    def train_step(self, *given: Any) -> Any:
        """Keras' own step between two notes."""
        return self._noted(super().train_step, given)

    def test_step(self, *given: Any) -> Any:
        """The same for a batch of validation."""
        return self._noted(super().test_step, given)

    def _noted(self, step: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """On JAX a step is given the model's state before the batch, and returns it last."""
        *state, (rows, *others) = given
        made = step(*state, (self._begin(rows), *others))
        logs, *state = made if state else (made,)
        weights = state[0][0] if state else [own.value for own in self.trainable_variables]
        logs = {**logs, "loss": self._end(logs["loss"], weights)}
        return (logs, *state) if state else logs
