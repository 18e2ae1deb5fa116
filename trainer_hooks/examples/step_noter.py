"""Says from within a compiled step when it ran: below any training loop, and any hook of one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trainer_hooks.examples.busy_spans import SpanNotes

Begin = Callable[[Any], Any]
"""Is given the batch's rows, and hands them on: the compute begins."""

End = Callable[[Any, list[Any]], Any]
"""Is given the loss and every weight that the step updated, and hands the loss on."""


class StepNoter:
    """Makes one busy span of two calls from within a step.

    Both take NumPy arrays and hand the first back as it is: so a compiler can
    neither leave a call out nor move it.
    """

    def __init__(self, spans: SpanNotes) -> None:
        self._spans = spans
        self._began_ns = 0

    def begin(self, rows: Any) -> Any:
        """The batch is there and the compute begins."""
        self._began_ns = time.monotonic_ns()
        return np.asarray(rows)

    def end(self, loss: Any, *_: Any) -> Any:
        """The compute is done."""
        self._spans.note(self._began_ns, time.monotonic_ns())
        return np.asarray(loss, dtype=np.float32)


def noted_in_jax(noter: StepNoter) -> tuple[Begin, End]:
    """Host callbacks within the compiled program, which JAX runs to its end before it goes on."""
    import jax
    import jax.numpy as jnp

    def begin(rows: Any) -> Any:
        return jax.pure_callback(noter.begin, jax.ShapeDtypeStruct(rows.shape, rows.dtype), rows)

    def end(loss: Any, weights: list[Any]) -> Any:
        touched = [jnp.ravel(each)[0] for each in weights]
        return jax.pure_callback(noter.end, jax.ShapeDtypeStruct((), jnp.float32), loss, *touched)

    return begin, end


def noted_in_tensorflow(noter: StepNoter) -> tuple[Begin, End]:
    """Python operations in the graph of the step."""
    import tensorflow as tf

    def begin(rows: Any) -> Any:
        begun = tf.numpy_function(noter.begin, [rows], rows.dtype)
        begun.set_shape(rows.shape)
        return begun

    def end(loss: Any, weights: list[Any]) -> Any:
        # Reading a variable comes after what the step assigned to it.
        touched = [tf.reshape(each, [-1])[0] for each in weights]
        ended = tf.numpy_function(noter.end, [loss, *touched], tf.float32)
        ended.set_shape(())
        return ended

    return begin, end


def noted_in_torch(noter: StepNoter) -> tuple[Begin, End]:
    """Right before the forward pass and after the optimizer: a CPU computes as torch goes."""

    def begin(rows: Any) -> Any:
        noter.begin(())
        return rows

    def end(loss: Any, weights: list[Any]) -> Any:
        noter.end(0.0)
        return loss

    return begin, end
