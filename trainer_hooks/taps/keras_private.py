"""Every private name of Keras and TensorFlow that the hooks use, and what happens without it.

``multi_gpu_model`` needs the names in ``NEEDED``: it checks each before it changes anything, and
refuses with a sentence if one has gone or changed. The names that a tagger uses are optional:
without one it sees less, and the run is the same.

Seen in Keras 3.14, 3.15 and 3.16 (of October 2026), on TensorFlow 2.21.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import count
from types import FrameType
from typing import Any, Final, NamedTuple

SEEN_IN: Final = "Keras 3.14 to 3.16 on TensorFlow 2.21"

# Used by a tagger and ``prefetch_to_device``.
FLUSH: Final = "_flush_futures"
"""Of a ``CallbackList`` with callbacks on other threads: waits for them. Else no device_sync."""
RUNS_ASIDE: Final = "_async_train"
"""Of a ``CallbackList``: whether it has such. Else each step is assumed to be waited for."""
BUILD: Final = "_symbolic_build"
"""Of a trainer: builds a model from a first batch. Else that wait is start_up."""
ONE_BATCH, ITERATOR = "one_step_on_data", "multi_step_on_iterator"
"""In the closure of a TensorFlow step function. Else the wait is part of the step."""
DATASET: Final = "_distributed_dataset"
"""Of an epoch's iterator in ``predict``. Else the wait is part of the prediction."""
LOADER: Final = "_dataloader"
"""Of a torch loader's adapter. Else its settings are unknown."""
TF_DATASET: Final = "_dataset"
"""Of a ``tf.data.Dataset``'s adapter. Else its stages are unknown."""
JAX_STATE, JAX_STATE_IS_SYNCED = "_jax_state", "_jax_state_synced"
"""Of a model on JAX: the weights during training. Else they are put back before reading."""
FINITE, INFINITE, ORDER = "_finite_generator", "_infinite_generator", "indices"
"""Keras' generators over a PyDataset, and the order of the first. Else none is read ahead."""
MASK: Final = "_keras_mask"
"""Of a tensor. Else nothing is masked."""


class Needed(NamedTuple):
    """A name that ``multi_gpu_model`` cannot do without.

    Attributes:
        of: Its owner, as a key of ``missing``'s argument.
        name: The attribute.
        takes: The first parameters of a method; empty for other attributes.
    """

    of: str
    name: str
    takes: tuple[str, ...] = ()


NEEDED: Final = (
    Needed("layer", "_flatten_layers", ("include_self", "recursive")),
    Needed("layer", "_metrics"),
    Needed("variable", "_value"),
    Needed("variable", "_initialize", ("value",)),
    Needed("TensorFlow variable", "_unique_id"),
    Needed("shared variable", "_update", ("update_fn", "value")),
    Needed("strategy", "_collective_key_base"),
    Needed("optimizer", "_trainable_variables"),
    Needed("compiled model", "_compile_config"),
    Needed("compiled model", "_compile_loss"),
    Needed("compiled model", "_compile_metrics"),
    Needed("compiled model", "_loss_tracker"),
)
COMPILED: Final = tuple(needed.name for needed in NEEDED if needed.of == "compiled model")
"""What ``compile`` leaves on a model for ``save``."""
_NOTHING: Final = object()


def missing(having: Mapping[str, object]) -> str | None:
    """Return the first needed name that is missing or different; ``None``: all are as seen.

    Args:
        having: The owners, by ``Needed.of``; others are not checked.
    """
    for needed in NEEDED:
        owner = having.get(needed.of, _NOTHING)
        if owner is _NOTHING:
            continue
        found = attribute_of(owner, needed.name)
        if found is _NOTHING or not _takes(found, needed.takes):
            return f"{needed.of}.{needed.name}"
    return None


def refuse_others(having: Mapping[str, object]) -> None:
    """Refuse a Keras or TensorFlow that differs from those that were seen.

    Raises:
        ValueError: With both versions, and what to do.
    """
    gone = missing(having)
    if gone is not None:
        import keras
        import tensorflow as tf

        raise ValueError(
            f"multi_gpu_model cannot share weights on Keras {keras.__version__} with TensorFlow "
            f"{tf.__version__}, because {gone} is not as in {SEEN_IN}; install one of these, or "
            "use tf.distribute.MirroredStrategy, where the GPUs are equal"
        )


def attribute_of(owner: object, name: str) -> object:
    """Like ``getattr``, for ``missing``."""
    return getattr(owner, name, _NOTHING)


def _takes(method: Any, parameters: Sequence[str]) -> bool:  # noqa: ANN401
    if not parameters:
        return True
    try:
        named = [name for name in inspect.signature(method).parameters if name != "self"]
    except (TypeError, ValueError):
        return False
    return named[: len(parameters)] == list(parameters)


def layers_of(model: Any, *, directly: bool = False) -> list[Any]:  # noqa: ANN401
    """Return a model and all layers at any depth; ``directly``: only those right inside it."""
    layers: list[Any] = model._flatten_layers(include_self=not directly, recursive=not directly)
    return layers


def own_metrics_of(layer: Any) -> list[Any]:  # noqa: ANN401
    """Return the metrics that a layer keeps itself, without those given to ``compile``."""
    metrics: list[Any] = layer._metrics
    return metrics


def value_of(variable: Any) -> Any:  # noqa: ANN401
    """Return TensorFlow's variable in Keras': with mixed precision, ``value`` is a cast."""
    return variable._value


def give_value(variable: Any, tensor: Any) -> Any:  # noqa: ANN401
    """Let Keras' variable have a new TensorFlow variable, and return that."""
    variable._initialize(tensor)
    return value_of(variable)


def let_pass_for(new: Any, former: Any) -> None:  # noqa: ANN401
    """Give a new variable the id by which optimizers know the former."""
    new._unique_id = former._unique_id


def trained_by(optimizer: Any) -> list[Any]:  # noqa: ANN401
    """Return the variables that a built optimizer trains, in its order."""
    variables: list[Any] = optimizer._trainable_variables
    return variables


def mask_of(tensor: Any) -> Any:  # noqa: ANN401
    """Return the mask of a tensor; ``None``: all of it counts."""
    return getattr(tensor, MASK, None)


def masked(tensor: Any, mask: Any) -> Any:  # noqa: ANN401
    """Return ``tensor`` with that mask, if any; derived tensors have none."""
    if mask is not None:
        setattr(tensor, MASK, mask)
    return tensor


SCHEDULE: Final = "_learning_rate"
"""Of an optimizer: its schedule, if any. Else it is recreated from its configuration."""
REDUCES: Final = "_all_reduce_sum_gradients"
"""Of an optimizer: sums gradients over replicas. ``compile`` refuses one without it."""
SPARED: Final = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
"""Of an optimizer: arguments of ``exclude_from_weight_decay``, not in its configuration."""
KEY_BASE: Final = "_collective_key_base"
"""Of a strategy class: the number from which its device groups are counted."""


def order_of(generator: FrameType) -> Sequence[int] | count[int] | None:
    """Return the indices that a generator of Keras requests; ``None`` for an unknown generator."""
    if generator.f_code.co_name == INFINITE:
        return count()
    if generator.f_code.co_name != FINITE:
        return None
    order = generator.f_locals.get(ORDER)
    return order if isinstance(order, (range, list)) else None
