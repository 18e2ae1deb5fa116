"""One set of weights for the user's model and for the devices that train it.

Each variable of the model keeps its identity, name and layer; only its value is replaced by one
with a copy on every device. So nothing is copied between the model and its replicas: reading a
weight returns what was trained last, and writing one writes all copies.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import get_ident

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import Setting, Tensor
from trainer_hooks.taps.keras_private import (
    give_value,
    layers_of,
    let_pass_for,
    own_metrics_of,
    refuse_others,
    value_of,
)


def share_weights(
    model: keras.Model, strategy: tf.distribute.MirroredStrategy
) -> tuple[Setting, ...]:
    """Give every variable of ``model`` a copy on each device of ``strategy``.

    Returns:
        All its variables.
    """
    shared = state_of(model)
    moved = [each for each in shared if strategy_of(each) is not strategy]
    if moved:
        with strategy.scope():
            scratch = tf.Variable(0.0, trainable=False)
        refuse_others({"shared variable": type(scratch)})
    for variable in moved:
        _move(variable, strategy)
    if moved:
        _retrace(moved)
    for layer in layers_of(model):
        # For models compiled later, too: Keras checks every layer, and warns where XLA was
        # requested.
        layer.supports_jit = False
    return shared


def state_of(model: keras.Model) -> tuple[Setting, ...]:
    """All its variables, once each, including those of the layers' metrics."""
    every = [*model.variables, *metric_variables(model)]
    return tuple({id(variable): variable for variable in every}.values())


def metric_variables(model: keras.Model) -> list[Setting]:
    """The variables of the layers' own metrics, not of those given to ``compile``."""
    metrics = [metric for part in layers_of(model) for metric in own_metrics_of(part)]
    return list({id(v): v for metric in metrics for v in metric.variables}.values())


def strategy_of(variable: Setting) -> tf.distribute.MirroredStrategy | None:
    """The strategy that its value was shared over here; ``None`` for any other value."""
    value = value_of(variable)
    return value.distribute_strategy if isinstance(value, _WrittenEverywhere) else None


class _ReadAsNumber:
    """Mixin for a value with copies: ``float()`` and ``int()`` read the first copy.

    ``float(model.optimizer.learning_rate)`` works on one device and must work here.
    """

    distribute_strategy: Setting

    def __float__(self) -> float:
        return float(self._first_copy())

    def __int__(self) -> int:
        return int(self._first_copy())

    def _first_copy(self) -> Setting:
        return self.distribute_strategy.experimental_local_results(self)[0]


class _WrittenEverywhere(_ReadAsNumber):
    """Mixin for a value with copies: writing it writes all of them."""

    name: str

    def _update(self, update_fn: Setting, value: Tensor, **named: Setting) -> Tensor:
        """Update all copies, also outside of the strategy.

        There, TensorFlow refuses what Keras' optimizers do on one device.
        """
        if tf.distribute.has_strategy():
            return super()._update(update_fn, value, **named)  # type: ignore[misc]
        strategy = self.distribute_strategy
        if any(thread != get_ident() and id(self) in ids for thread, ids in strategy.active_fits):
            raise RuntimeError(
                f"{self.name} is being trained on several devices by another thread, and "
                "cannot be set meanwhile: do that in a callback, or between two fits"
            )
        return strategy.extended.update(self, update_fn, args=(value,), kwargs=named, group=True)


@functools.cache
def _with_kind(front: type, kind: Setting) -> type:
    return type(kind.__name__, (front, kind), {})


def read_as_numbers(variables: Sequence[Setting]) -> None:
    """Let ``float()`` and ``int()`` read Keras variables made in the scope of a strategy."""
    for variable in variables:
        value: Setting = value_of(variable)
        kind: Setting = type(value)
        if not isinstance(value, _ReadAsNumber):
            value.__class__ = _with_kind(_ReadAsNumber, kind)


def _move(variable: Setting, strategy: tf.distribute.MirroredStrategy) -> None:
    former = value_of(variable)
    with strategy.scope():
        shared = give_value(variable, tf.convert_to_tensor(former))
    kind: Setting = type(shared)
    shared.__class__ = _with_kind(_WrittenEverywhere, kind)
    let_pass_for(strategy.experimental_local_results(shared)[0], former)


def _retrace(variables: Sequence[Setting]) -> None:
    """Let every Keras model that uses one of these trace its steps again, without XLA.

    Traced steps hold the old values, and XLA compiles for one device. All models are searched,
    because layers do not know the models that contain them, and a model that shares layers with
    ours would continue with outdated weights.
    """
    moved = {id(variable) for variable in variables}

    def uses_one(model: keras.Model) -> bool:
        with suppress(Exception):  # only partly initialised
            return any(id(variable) in moved for variable in model.variables)
        return False

    for found in gc.get_objects():
        if issubclass(type(found), keras.Model) and uses_one(found):
            found.train_function = found.test_function = found.predict_function = None
            found.jit_compile = False


@contextmanager
def trained_here(
    variables: Sequence[Setting], strategy: tf.distribute.MirroredStrategy
) -> Iterator[None]:
    """Within this context no other thread may write these: the copies would diverge."""
    own = get_ident(), frozenset(id(value_of(variable)) for variable in variables)
    strategy.active_fits.append(own)
    try:
        yield
    finally:
        strategy.active_fits.remove(own)
