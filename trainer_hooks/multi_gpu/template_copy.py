"""The user's model and its mirrored copy: making one, and carrying weights between the two."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.tensors import Setting


def mirrored_copy(template: keras.Model) -> keras.Model:
    """A copy of ``template``, with the same weights, to be made in the scope of the strategy.

    Raises:
        ValueError: It cannot be made again from its configuration.
    """
    try:
        copy = _made_again(template)
    except Exception as error:  # whatever a layer's or a model's own from_config raises
        raise ValueError(
            f"the model {template.name!r} cannot be copied to several GPUs: making it from its "
            f"get_config() raised {type(error).__name__}: {error}"
        ) from error
    if _shapes(copy) != _shapes(template):
        raise ValueError(
            f"the model {template.name!r} cannot be copied to several GPUs: made from its "
            "get_config(), it has other weights than the original"
        )
    carry(template, copy)
    carry_adapted(template, copy)
    return copy


def _made_again(template: keras.Model) -> keras.Model:
    if type(template).__module__.startswith("keras."):  # Sequential, or of inputs and outputs
        return keras.models.clone_model(template, clone_function=_layer_again, recursive=True)
    # A class of the user's: clone_model would make a Sequential of a subclass of it.
    copy = type(template).from_config(template.get_config())
    if not copy.built:
        copy.build_from_config(template.get_build_config())
    return copy


def _layer_again(layer: Setting) -> Setting:
    """Another of the same settings; ``Lambda`` with the same function, which no text can hold."""
    if type(layer) is not keras.layers.Lambda:
        return type(layer).from_config(layer.get_config())
    words = {"output_shape": layer._output_shape, "mask": layer.mask, "arguments": layer.arguments}
    return keras.layers.Lambda(layer.function, name=layer.name, dtype=layer.dtype_policy, **words)


def _shapes(model: keras.Model) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in model.variables]


def carry(source: Setting, target: Setting) -> None:
    """Give every variable of ``target`` the value of that of ``source`` at the same place.

    Args:
        source: A model or an optimizer that is built.
        target: One of the same structure; either may be mirrored.
    """
    for here, there in zip(source.variables, target.variables, strict=True):
        there.assign(tf.convert_to_tensor(here.value))


def differ(one: Setting, other: Setting) -> bool:
    """Whether two models of one structure hold different weights anywhere; seeds move on."""
    return any(
        not bool(tf.reduce_all(tf.convert_to_tensor(a.value) == tf.convert_to_tensor(b.value)))
        for a, b in zip(one.weights, other.weights, strict=True)
    )


def carry_adapted(source: keras.Model, target: keras.Model) -> None:
    """Carry what ``adapt()`` taught: Normalization's mean in use, the words of a vocabulary."""
    for here, there in zip(_layers(source), _layers(target), strict=True):
        if hasattr(here, "save_assets"):
            with TemporaryDirectory() as folder:
                here.save_assets(folder)
                there.load_assets(folder)
        elif hasattr(there, "adapt_mean"):
            there.finalize_state()


def carry_trainable(source: keras.Model, target: keras.Model) -> None:
    """Freeze in ``target`` what is frozen in ``source``, layer by layer and weight by weight."""
    for here, there in zip(_layers(source), _layers(target), strict=True):
        there.trainable = here.trainable
    for here, there in zip(source.variables, target.variables, strict=True):
        there.trainable = here.trainable


def _layers(model: keras.Model) -> list[Setting]:
    """Of every depth, and the model itself; each after the one that it is in."""
    layers: list[Setting] = model._flatten_layers()
    return layers
