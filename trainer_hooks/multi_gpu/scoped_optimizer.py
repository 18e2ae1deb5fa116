"""The optimizer of the replicas: the user's, made anew where its variables are mirrored."""

from __future__ import annotations

import keras

from trainer_hooks.multi_gpu.tensors import Setting

_REDUCES = "_all_reduce_sum_gradients"


def scoped_optimizer(optimizer: Setting) -> Setting:
    """An optimizer of the same class and settings, to be made in the scope of the strategy.

    Args:
        optimizer: As it is given to ``compile``: a name, or an optimizer of Keras.

    Returns:
        A new one. Its gradients are taken as added up already: Keras would clip each
        replica's gradients before it adds them, which is not what one device does.

    Raises:
        ValueError: It does what only one device can do.
    """
    given = keras.optimizers.get(optimizer)
    config = given.get_config()
    schedule = getattr(given, "_learning_rate", None)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        config["learning_rate"] = schedule  # the object: a class of the user's has no name
    made = type(given).from_config(config)
    updating = innermost(made)
    _refuse_what_needs_one_device(updating)
    setattr(updating, _REDUCES, _already_reduced)
    return made


def innermost(optimizer: Setting) -> Setting:
    """The optimizer within a ``LossScaleOptimizer``, else the optimizer."""
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
    if not hasattr(optimizer, _REDUCES):
        raise ValueError(
            f"{name} does not add its gradients up in the way of Keras' own optimizers, and so "
            "its steps on several GPUs could not equal those on one"
        )


def _already_reduced(grads_and_vars: Setting) -> Setting:
    return grads_and_vars
