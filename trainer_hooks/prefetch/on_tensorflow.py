"""Prefetches a ``tf.data.Dataset`` with TensorFlow's own stages."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainer_hooks.batches.batch_rule import only_as
from trainer_hooks.prefetch.kinds import keras_backend, warn_of_no_gpu
from trainer_hooks.ring.guard import QuietWarningOnce

_HOST = ("CPU", 0)

_warn_of_several = QuietWarningOnce()


def prefetched(data: Any, depth: int, device: Any) -> Any:  # noqa: ANN401
    """A ``Dataset`` with its next elements ready on the device.

    It must be the last stage: later ones, such as the one that ``fit`` adds for ``class_weight``,
    move the elements back to the host. Its length is known if that of ``data`` is. If not, Keras
    ends an epoch with an empty step that partly counts, differently by device: avoid that by
    ``steps_per_epoch``, or ``tf.data.experimental.assert_cardinality`` before.

    Raises:
        ValueError: There is no such device; TensorFlow would silently keep the elements on the
            host.
    """
    wanted = _default() if device is None else _known(device)
    if wanted == _HOST:
        return only_as(data, data.prefetch(depth))
    name = "/{}:{}".format(*wanted)
    to_device = tf.data.experimental.prefetch_to_device(name, depth)
    ahead = _without_injected_prefetch(data).apply(to_device)
    # TensorFlow drops the length, and an asserting stage cannot run on a GPU.
    ahead.cardinality = data.cardinality
    return only_as(data, ahead)


def _default() -> tuple[str, int]:
    """The first visible GPU, unless another backend or a strategy places batches."""
    if keras_backend() not in (None, "tensorflow") or tf.distribute.has_strategy():
        return _HOST
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        warn_of_no_gpu("TensorFlow")
        return _HOST
    if len(gpus) > 1:
        _warn_of_several(
            f"prefetch_to_device: batches go to the first of {len(gpus)} GPUs; name the one that "
            'you train on, or device="CPU:0" for multi_gpu_model or a strategy, which send each '
            "GPU its part from the host",
        )
    return "GPU", _device_of(gpus[0])[1]


def _known(device: Any) -> tuple[str, int]:  # noqa: ANN401
    devices = [_device_of(known) for known in tf.config.list_logical_devices()]
    try:
        spec = tf.DeviceSpec.from_string(getattr(device, "name", device))
    except (ValueError, TypeError, AttributeError):
        spec = tf.DeviceSpec()
    wanted = (spec.device_type, spec.device_index or 0)
    if wanted in devices:
        return wanted
    names = ", ".join(f"{kind}:{index}" for kind, index in devices if kind in ("CPU", "GPU"))
    raise ValueError(f"TensorFlow has no device {device!r}: it has {names}")


def _device_of(device: Any) -> tuple[str, int]:  # noqa: ANN401
    spec = tf.DeviceSpec.from_string(device.name)
    return spec.device_type, spec.device_index


def _without_injected_prefetch(data: Any) -> Any:  # noqa: ANN401
    """TensorFlow would inject a prefetch stage, which adds to ``depth``."""
    if data.options().experimental_optimization.inject_prefetch is not None:
        return data  # the user has decided
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return data.with_options(options)
