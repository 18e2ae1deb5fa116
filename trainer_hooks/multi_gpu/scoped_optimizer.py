"""The optimizer of the replicas: a copy of the user's with mirrored variables."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import Setting
from trainer_hooks.taps.keras_private import REDUCES, SCHEDULE, SPARED, trained_by


def scoped_optimizer(optimizer: Setting) -> Setting:
    """A new optimizer of the same class and settings; call it in the scope of the strategy.

    It expects gradients that are summed up already: Keras would clip each replica's gradients
    before it adds them, unlike one device.

    Raises:
        ValueError: It needs a single device, or cannot be recreated.
    """
    given = keras.optimizers.get(optimizer)
    try:
        made = recreated(given)
    except Exception as error:  # whatever a custom get_config or from_config raises
        raise ValueError(
            f"{type(given).__name__} cannot be recreated for several GPUs: its get_config() or "
            f"from_config() raised {type(error).__name__}: {error}"
        ) from error
    updating = innermost(made)
    _refuse_what_needs_one_device(updating)
    setattr(updating, REDUCES, _already_reduced)
    _spare_from_decay(innermost(given), updating)
    return made


def copy_state(given: Setting, made: Setting, model: keras.Model) -> None:
    """Copy the state of an optimizer that has trained ``model`` before."""
    if isinstance(given, str) or not getattr(given, "built", False):
        return
    pairs = ((given, made), (innermost(given), innermost(made)))
    source, target = next(pair for pair in pairs if type(pair[0]) is type(pair[1]))
    trained = [id(variable) for variable in trained_by(innermost(given))]
    if trained == [id(variable) for variable in model.trainable_variables]:
        for known, new in zip(source.variables, target.variables, strict=True):
            new.assign(tf.convert_to_tensor(known.value))


def recreated(given: Setting) -> Setting:
    """A new optimizer with the class and settings of ``given``, not built."""
    inner = getattr(given, "inner_optimizer", None)
    if inner is not None:
        growth = given.dynamic_growth_steps
        return type(given)(recreated(inner), given.initial_scale, growth, name=given.name)
    schedule = getattr(given, SCHEDULE, None)
    if not callable(schedule):
        return type(given).from_config(given.get_config())
    # Reuse the schedule itself: a custom one may have no configuration.
    plain = object.__new__(type(given))
    plain.__dict__.update(given.__dict__, **{SCHEDULE: 0.0})
    return type(given).from_config({**plain.get_config(), "learning_rate": schedule})


def _spare_from_decay(given: Setting, made: Setting) -> None:
    """Arguments of ``exclude_from_weight_decay`` are in no configuration."""
    for name in SPARED:
        if hasattr(given, name):
            setattr(made, name, getattr(given, name))


def innermost(optimizer: Setting) -> Setting:
    """The optimizer inside a ``LossScaleOptimizer``, else the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _refuse_what_needs_one_device(optimizer: Setting) -> None:
    name = type(optimizer).__name__
    if optimizer.gradient_accumulation_steps:
        raise ValueError(
            f"{name}(gradient_accumulation_steps=...) cannot be spread over GPUs: TensorFlow "
            "cannot synchronise inside the condition that it needs; leave it out and give the "
            "batch those samples at once, or use trainer_hooks.ddp, which accumulates"
        )
    if optimizer.use_ema and optimizer.ema_overwrite_frequency:
        raise ValueError(
            f"{name}(ema_overwrite_frequency=...) cannot be spread over GPUs; with use_ema=True "
            "alone the averages replace the weights at the end of fit"
        )
    if not hasattr(optimizer, REDUCES):
        raise ValueError(
            f"{name} does not sum up gradients as Keras' optimizers do, so its steps on several "
            "GPUs would differ from those on one"
        )


def _already_reduced(grads_and_vars: Setting) -> Setting:
    return grads_and_vars
