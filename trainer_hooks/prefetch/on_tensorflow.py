"""Batches of ``tf.data``, by TensorFlow's own means."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer_hooks.batches.only_for_training import only_as
from trainer_hooks.prefetch.kinds import keras_backend, say_that_there_is_no_gpu
from trainer_hooks.ring.quiet_warning import QuietWarningOnce

_HOST = ("CPU", 0)

_warn_of_several = QuietWarningOnce()


def prefetched(data: Any, depth: int, device: Any) -> Any:  # noqa: ANN401
    """A ``Dataset`` that has its next elements ready, on the device.

    It must be the last stage: one that follows, such as the one that ``fit``
    adds for ``class_weight``, takes the elements back to the host. It knows its
    length if ``data`` does. Where nobody does, Keras ends an epoch with a step
    on nothing, parts of which count, and which parts may differ by device:
    ``steps_per_epoch``, or ``tf.data.experimental.assert_cardinality`` before, prevents it.

    Raises:
        ValueError: There is no such device: TensorFlow itself would keep the elements on the
            host and say nothing.
    """
    wanted = _default() if device is None else _known(device)
    if wanted == _HOST:
        return only_as(data, data.prefetch(depth))
    name = "/{}:{}".format(*wanted)
    to_device = tf.data.experimental.prefetch_to_device(name, depth)
    ahead = _without_a_stage_of_its_own(data).apply(to_device)
    # TensorFlow forgets the length, and to assert it would be a stage that no GPU has.
    ahead.cardinality = data.cardinality
    return only_as(data, ahead)


def _default() -> tuple[str, int]:
    """The first visible GPU, unless somebody else decides where each part of a batch goes."""
    if keras_backend() not in (None, "tensorflow") or tf.distribute.has_strategy():
        return _HOST
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        say_that_there_is_no_gpu("TensorFlow")
        return _HOST
    if len(gpus) > 1:
        _warn_of_several(
            f"prefetch_to_device: of {len(gpus)} GPUs, batches go to the first; name the one you "
            'train on, or device="CPU:0" for multi_gpu_model or a strategy, which send each GPU '
            "its own part from the host",
        )
    return "GPU", _place_of(gpus[0])[1]


def _known(device: Any) -> tuple[str, int]:  # noqa: ANN401
    devices = [_place_of(known) for known in tf.config.list_logical_devices()]
    try:
        spec = tf.DeviceSpec.from_string(getattr(device, "name", device))
    except (ValueError, TypeError, AttributeError):
        spec = tf.DeviceSpec()
    place = (spec.device_type, spec.device_index or 0)
    if place in devices:
        return place
    names = ", ".join(f"{kind}:{index}" for kind, index in devices if kind in ("CPU", "GPU"))
    raise ValueError(f"TensorFlow has no device {device!r}: there is {names}")


def _place_of(device: Any) -> tuple[str, int]:  # noqa: ANN401
    spec = tf.DeviceSpec.from_string(device.name)
    return spec.device_type, spec.device_index


def _without_a_stage_of_its_own(data: Any) -> Any:  # noqa: ANN401
    """TensorFlow puts a prefetch of a size of its own before a copy, or ``depth`` would be more."""
    if data.options().experimental_optimization.inject_prefetch is not None:
        return data  # it was decided
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)
