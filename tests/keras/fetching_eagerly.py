"""Keras' step function as of 3.16: it fetches one batch outside of any graph, as 3.15 does not."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import tensorflow as tf
from keras.src.backend.tensorflow import trainer


def fetch_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the steps of every model that is made from now on be made so, where they are not yet."""
    kind: Any = getattr(trainer, "TensorFlowTrainer", None)
    if kind is None:  # this is Keras 3.16
        return
    make = kind._make_function

    def make_function(self: Any, step_function: Any) -> Any:
        made = make(self, step_function)
        held = inspect.getclosurevars(made).nonlocals
        one_step_on_data = held["one_step_on_data"]
        multi_step_on_iterator = held["multi_step_on_iterator"]

        def function(iterator: Any) -> Any:
            if not isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
                return made(iterator)
            if self.steps_per_execution == 1:
                next_optional_inputs = iterator.get_next_as_optional()
                if not next_optional_inputs.has_value():
                    raise StopIteration
                return one_step_on_data(next_optional_inputs.get_value())
            opt_outputs = multi_step_on_iterator(iterator)
            if not opt_outputs.has_value():
                raise StopIteration
            return opt_outputs.get_value()

        return function

    monkeypatch.setattr(kind, "_make_function", make_function)
