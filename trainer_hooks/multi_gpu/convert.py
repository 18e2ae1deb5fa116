"""``multi_gpu_model``, ``serialize`` and related functions: from one device to several and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import keras
import tensorflow as tf

from gpumon.core.attribution.batch_shares import checked_ratios, split_counts
from trainer_hooks.multi_gpu.batch_split import Tensor
from trainer_hooks.multi_gpu.devices import device_names, make_stand_ins
from trainer_hooks.multi_gpu.parallel_model import HOST, ParallelModel
from trainer_hooks.multi_gpu.shared_weights import strategy_of
from trainer_hooks.ring.guard import warn_quietly
from trainer_hooks.taps.keras_private import layers_of, refuse_others, value_of

make_stand_ins()

OLDEST_KERAS: Final = (3, 14)
"""A step fails on 3.7 to 3.11; 3.12 and 3.13 count an ``activity_regularizer`` wrongly."""
_OWN_STEPS = ("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")


def multi_gpu_model(
    model: keras.Model,
    gpus: int | Sequence[int | str] | None = None,
    ratios: Sequence[float] | None = None,
    cpu_merge: bool = True,
    cpu_relocation: bool = False,
) -> ParallelModel:
    """Make a model whose batches are split over several GPUs, by ratios where they are unequal.

    Has the signature of Keras 2 and of the ratio repository. Each GPU trains a copy on its part
    of the batch; each part's loss is weighted by its share, so that the gradients are those of
    the whole batch; all copies are updated alike. ``model`` and the copies share their weights,
    so ``model`` always has the trained ones.

    Args:
        model: Any built Keras model without a custom ``train_step`` or ``compute_loss``.
        gpus: How many of the visible GPUs, or which: indices, or TensorFlow's names (``"CPU:1"``
            is a logical device, for trying without a GPU). ``None``: all visible GPUs.
        ratios: One positive number per GPU; each batch is split in these proportions, exact to
            the sample, and every GPU gets at least one. ``None``: equal parts.
        cpu_merge: Merge the outputs in the host's memory, not on the first GPU.
        cpu_relocation: Accepted for Keras 2; has no effect, because the weights of ``model`` are
            on the GPUs that train it and nowhere else.

    Returns:
        A model to compile, fit, evaluate, predict, checkpoint and save as usual.

    Raises:
        ImportError: Keras is older than 3.14.
        ValueError: Invalid ratios or GPUs, or a model that cannot be split.
    """
    _refuse_old_keras()
    _refuse_another_keras()
    _refuse_what_cannot_be_split(model)
    _warn_of_unknown_variables(model)
    devices = device_names(gpus)
    split_in = checked_ratios([1] * len(devices) if ratios is None else ratios, len(devices))
    return ParallelModel(model, devices, split_in, host=HOST if cpu_merge else devices[0])


def to_multi_gpu(model: keras.Model, n_gpus: int = 3) -> ParallelModel:
    """``multi_gpu_model(model, gpus=n_gpus)`` with equal parts, as in the second article."""
    return multi_gpu_model(model, gpus=n_gpus)


def slice_batch(x: Tensor, n_gpus: int, part: int) -> Tensor:
    """Part number ``part`` of ``n_gpus`` equal parts of a batch.

    Args:
        x: Array or tensor; its first axis is the batch.
        n_gpus: Number of parts, 1 or more.
        part: Which part, from 0.

    Raises:
        ValueError: There is no such part.
    """
    if not 0 <= part < n_gpus:
        raise ValueError(f"there is no part {part} of {n_gpus}: parts are counted from 0")
    size = x.shape[0] if isinstance(x.shape[0], int) else int(tf.shape(x)[0])
    counts = split_counts(size, [1] * n_gpus)
    start = sum(counts[:part])
    return x[start : start + counts[part]]


def serialize(model: keras.Model) -> keras.Model:
    """The single-device model within a parallel one, with the trained weights.

    Args:
        model: Made by ``multi_gpu_model``; or a model that slices and merges batches around one
            inner model, as in Keras 2.

    Returns:
        The model that was made parallel itself: its weights and outputs are bit-equal.

    Raises:
        ValueError: It is not parallel.
    """
    if isinstance(model, ParallelModel):
        return model.template
    inner = [layer for layer in getattr(model, "layers", ()) if isinstance(layer, keras.Model)]
    if len(inner) == 1:
        return inner[0]
    raise ValueError(
        f"{getattr(model, 'name', model)!r} is not a parallel model: serialize() takes what "
        "multi_gpu_model made; any other model is saved by its own save()"
    )


def _refuse_old_keras() -> None:
    version = tuple(int(part) for part in keras.__version__.split(".")[:2])
    if version < OLDEST_KERAS:
        raise ImportError(
            f"multi_gpu_model needs Keras 3.14 or newer, and this is Keras {keras.__version__}: "
            "pip install -U keras"
        )


def _refuse_another_keras() -> None:
    """Check Keras' private names on objects of our own, before anything is changed."""
    name = "gpumon_probe"
    model, optimizer = keras.Sequential(name=name), keras.optimizers.SGD(name=name)
    model.compile(optimizer, "mse")
    variable = keras.Variable([0.0], name=name)
    refuse_others(
        {
            "layer": model,
            "compiled model": model,
            "optimizer": optimizer,
            "variable": variable,
            "strategy": tf.distribute.MirroredStrategy,
        }
    )
    refuse_others({"TensorFlow variable": value_of(variable)})


def _refuse_what_cannot_be_split(model: object) -> None:
    if not isinstance(model, keras.Model):
        raise ValueError(f"multi_gpu_model takes a Keras model, not {type(model).__name__}")
    parallel = [part for part in layers_of(model) if isinstance(part, ParallelModel)]
    if parallel:
        raise ValueError(
            f"{model.name!r} is parallel already; change the split by model.ratios = [...], or "
            "make a new parallel model of serialize(model)"
        )
    if tf.distribute.has_strategy() or any(
        isinstance(variable.value, tf.distribute.DistributedValues) and not strategy_of(variable)
        for variable in model.variables
    ):
        raise ValueError(
            "multi_gpu_model uses a tf.distribute strategy of its own: make the model and call "
            "it outside of any strategy.scope()"
        )
    if not model.built:
        raise ValueError(
            f"{model.name!r} has no weights yet: give it a keras.Input, or call it on a batch, "
            "before it is made parallel"
        )
    stateful = [part.name for part in layers_of(model) if getattr(part, "stateful", False)]
    if stateful:
        raise ValueError(
            f"{stateful[0]!r} keeps a state for each row of a batch (stateful=True), and which GPU "
            "has which row may change from batch to batch; make the layer with stateful=False"
        )
    own = [name for name in _OWN_STEPS if getattr(type(model), name) != getattr(keras.Model, name)]
    if own:
        raise ValueError(
            f"{type(model).__name__} has a {own[0]} of its own, which cannot be split over "
            "GPUs; give compile() a loss and metrics instead (layers may call add_loss), or use "
            "tf.distribute"
        )


def _warn_of_unknown_variables(model: keras.Model) -> None:
    for layer in layers_of(model):
        if any(isinstance(value, tf.Variable) for value in vars(layer).values()):
            warn_quietly(
                f"{layer.name!r} keeps a tf.Variable of its own, which Keras does not know and "
                "all GPUs share: each GPU writes it separately; make it by add_weight()"
            )
