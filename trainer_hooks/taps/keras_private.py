"""Every private name of Keras and TensorFlow that the hooks rely on, and what they do without it.

``multi_gpu_model`` trains with the names in ``NEEDED``: it looks for each before it changes
anything, and refuses in a sentence where one is gone or is called otherwise. Those that a tagger
looks at are only names here: where one is gone, it knows less, and the training is the same.

Seen in Keras 3.14, 3.15 and 3.16 (of October 2026), on TensorFlow 2.21.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import count
from types import FrameType
from typing import Any, Final, NamedTuple

SEEN_IN: Final = "Keras 3.14 to 3.16 on TensorFlow 2.21"

# What a tagger and ``prefetch_to_device`` look at.
FLUSH: Final = "_flush_futures"
"""Of a ``CallbackList`` with callbacks on other threads: it waits for them. Else no device_sync."""
RUNS_ASIDE: Final = "_async_train"
"""Of a ``CallbackList``: whether it has such. Else each step is taken to be waited for."""
BUILD: Final = "_symbolic_build"
"""Of a trainer: builds a model from a first batch. Else that wait is start_up."""
ONE_BATCH, ITERATOR = "one_step_on_data", "multi_step_on_iterator"
"""What a step function of TensorFlow holds. Else the wait is part of the step."""
DATASET: Final = "_distributed_dataset"
"""Of an epoch's iterator in ``predict``. Else the wait is part of the prediction."""
LOADER: Final = "_dataloader"
"""Of the adapter of a torch loader. Else its settings are not known."""
TF_DATASET: Final = "_dataset"
"""Of the adapter of a ``tf.data.Dataset``. Else its stages are not known."""
JAX_STATE, JAX_STATE_IS_SYNCED = "_jax_state", "_jax_state_synced"
"""Of a model on JAX: the weights of a training under way. Else they are put back to be seen."""
FINITE, INFINITE, ORDER = "_finite_generator", "_infinite_generator", "indices"
"""Keras' generators over a PyDataset, and the order in which the first asks. Else none is read
ahead."""
MASK: Final = "_keras_mask"
"""Of a tensor. Else nothing is masked."""


class Needed(NamedTuple):
    """A name that ``multi_gpu_model`` cannot do without.

    Attributes:
        of: What has it, as ``missing`` is given it.
        name: The attribute.
        takes: The first parameters of a method; empty: it is none.
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
"""What ``compile`` leaves on a model, and ``save`` looks for there."""
_NOTHING: Final = object()


def missing(having: Mapping[str, object]) -> str | None:
    """The first needed name that one of these has not, or not so; ``None``: all is as it was seen.

    Args:
        having: What has them, by ``Needed.of``; of others nothing is asked.
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
    """Refuse a Keras, or a TensorFlow, that is not as those that were seen.

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
    """A model and all layers at any depth; ``directly``: only those right inside it."""
    layers: list[Any] = model._flatten_layers(include_self=not directly, recursive=not directly)
    return layers


def own_metrics_of(layer: Any) -> list[Any]:  # noqa: ANN401
    """The metrics that a layer keeps itself, not those that ``compile`` was given."""
    metrics: list[Any] = layer._metrics
    return metrics


def value_of(variable: Any) -> Any:  # noqa: ANN401
    """TensorFlow's variable within Keras': in mixed precision layers see ``value`` as another."""
    return variable._value


def give_value(variable: Any, tensor: Any) -> Any:  # noqa: ANN401
    """Let Keras' variable have a new one of TensorFlow's, made here; that is returned."""
    variable._initialize(tensor)
    return value_of(variable)


def let_pass_for(new: Any, former: Any) -> None:  # noqa: ANN401
    """Optimizers that have trained the former variable of TensorFlow know it by this."""
    new._unique_id = former._unique_id


def trained_by(optimizer: Any) -> list[Any]:  # noqa: ANN401
    """The variables that a built optimizer trains, in the order of its own."""
    variables: list[Any] = optimizer._trainable_variables
    return variables


def mask_of(tensor: Any) -> Any:  # noqa: ANN401
    """What Keras' layers are not to count of a tensor; ``None``: they count all of it."""
    return getattr(tensor, MASK, None)


def masked(tensor: Any, mask: Any) -> Any:  # noqa: ANN401
    """``tensor``, with that mask where there is one; what is made of a tensor has none."""
    if mask is not None:
        setattr(tensor, MASK, mask)
    return tensor


SCHEDULE: Final = "_learning_rate"
"""Of an optimizer: its schedule, where it has one. Else it is made again from its configuration."""
REDUCES: Final = "_all_reduce_sum_gradients"
"""Of an optimizer: adds gradients up over replicas. One without it is refused by ``compile``."""
SPARED: Final = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
"""Of an optimizer: what ``exclude_from_weight_decay`` was given, which no configuration has."""
KEY_BASE: Final = "_collective_key_base"
"""Of a class of strategies: the number that its groups of devices are counted from."""


def order_of(generator: FrameType) -> Sequence[int] | count[int] | None:
    """The numbers that a generator of Keras asks for; None where it is none that we know."""
    if generator.f_code.co_name == INFINITE:
        return count()
    if generator.f_code.co_name != FINITE:
        return None
    order = generator.f_locals.get(ORDER)
    return order if isinstance(order, (range, list)) else None
