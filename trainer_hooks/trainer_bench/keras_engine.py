"""Real training: the article's model with Keras on TensorFlow, on GPUs or logical devices."""

from __future__ import annotations

import gc
import itertools
import os
import re
import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpumon.errors import SourceUnavailableError, UsageError
from trainer_hooks.trainer_bench.measuring import BenchStep, Feed, GpuOutOfMemoryError

if TYPE_CHECKING:
    import keras

SIDE: Final = 28
CLASSES: Final = 10

Widths = tuple[tuple[int, ...], ...]
"""Filters of the convolution blocks, then the widths of the dense layers."""

FULL: Final[Widths] = ((32, 64, 128, 256), (512,) * 4, (*(2048,) * 5, 1024))
"""The article's: 37 million weights."""

_WIDTHS: Final = {"full": FULL, "small": ((4, 8), (8,), (32,))}
_NAME: Final = re.compile(r"(GPU|CPU):(\d+)")
_OUT_OF_MEMORY: Final = (
    "resourceexhausted",
    "resource_exhausted",
    "out of memory",
    "oom when allocating",
)


class KerasEngine:
    """Trains a large convolutional net for images of digits.

    The images are noise, made once, because the GPU is measured, not the data.
    """

    is_simulated = False

    def __init__(self, gpus: Sequence[str], *, size: str) -> None:
        """Start TensorFlow, with logical CPU devices where ``gpus`` names any.

        Args:
            gpus: The devices to train on, such as ``GPU:0`` or ``CPU:1``.
            size: ``"full"``, the article's net, or ``"small"``, which a CPU can train.

        Raises:
            SourceUnavailableError: TensorFlow or a named GPU is missing.
            UsageError: An invalid device name.
        """
        invalid = [gpu for gpu in gpus if not _NAME.fullmatch(gpu)]
        if invalid:
            raise UsageError(f"{invalid[0]} is not a device: write 0, GPU:0 or CPU:1")
        self._size = size
        self._tf = _tensorflow()
        self._cpus = [gpu for gpu in gpus if gpu.startswith("CPU")]
        self._make_logical_cpus()
        self._logical = [
            f"{device.device_type}:{device.name.rsplit(':', 1)[-1]}"
            for device in self._tf.config.list_logical_devices()
        ]
        missing = [gpu for gpu in gpus if gpu not in self._logical]
        has_any = bool(self._cpus or self.gpus())
        if missing or not has_any:
            what = f"there is no {missing[0]}" if has_any else "TensorFlow sees no GPU"
            raise SourceUnavailableError(
                f"{what}; --simulate needs none, and --gpus CPU:1 CPU:2 --model small trains "
                "on the CPU"
            )

    def devices(self) -> tuple[str, ...]:
        lines = []
        for device in self._tf.config.list_physical_devices():
            facts = self._tf.config.experimental.get_device_details(device)
            name = facts.get("device_name", "")
            lines.append(f"{device.name.removeprefix('/physical_device:')}  {name}".rstrip())
        return (*lines, *(f"{cpu}  logical CPU device" for cpu in self._cpus))

    def gpus(self) -> tuple[str, ...]:
        return tuple(self._cpus or (name for name in self._logical if name.startswith("GPU")))

    def train(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Generator[BenchStep, None, None]:
        import keras

        total = sum(batches)
        model = None
        try:
            model = self._model(gpus, batches)
            images, labels = made_up_digits(total)
            self._train_once(model, images, labels)
            if feed is None:
                data = itertools.repeat((images, labels))
            else:
                data = iter(self._fed(gpus, (images, labels), feed))
                self._train_once(model, *next(data))  # tensors need a trace of their own
            ended = time.perf_counter()
            for batch in data:
                began = time.perf_counter()
                self._train_once(model, *batch)
                before, ended = ended, time.perf_counter()
                gap_seconds = 0.0 if feed is None else began - before
                yield BenchStep(total, gap_seconds + ended - began, gap_seconds=gap_seconds)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            # Not from that error: its traceback would keep the tensors alive.
            raise GpuOutOfMemoryError(None, gpus, batches) from None
        finally:
            del model
            keras.backend.clear_session()
            gc.collect()

    def _train_once(self, model: keras.Model, images: object, labels: object) -> None:
        # Reading the loss waits for the end of the step.
        float(model.train_on_batch(images, labels))

    def _fed(self, gpus: Sequence[str], batch: tuple[object, ...], feed: Feed) -> Any:  # noqa: ANN401
        """An endless ``tf.data.Dataset`` whose batches take ``feed.batch_seconds`` to make."""
        tf = self._tf

        def made() -> Iterator[tuple[object, ...]]:
            while True:
                time.sleep(feed.batch_seconds)
                yield batch

        signature = tuple(tf.type_spec_from_value(tf.constant(array)) for array in batch)
        on_demand = tf.data.Options()
        on_demand.autotune.enabled = False
        on_demand.experimental_optimization.inject_prefetch = False
        data = tf.data.Dataset.from_generator(made, output_signature=signature)
        data = data.with_options(on_demand)
        if not feed.is_ahead:
            return data
        from trainer_hooks.prefetch import prefetch_to_device

        # Several GPUs get their parts from the host.
        device = "CPU:0" if len(gpus) > 1 else (gpus or self.gpus())[0]
        return prefetch_to_device(data, depth=2, device=device)

    def _model(self, gpus: Sequence[str], batches: Sequence[int]) -> keras.Model:
        from trainer_hooks.multi_gpu import multi_gpu_model

        widths = _WIDTHS[self._size]
        if len(gpus) > 1:
            model = multi_gpu_model(maxing_net(widths), gpus=list(gpus), ratios=list(batches))
        else:
            with self._tf.device(gpus[0] if gpus else self.gpus()[0]):
                model = maxing_net(widths)
        model.compile(optimizer="adam", loss="categorical_crossentropy")
        return model

    def _make_logical_cpus(self) -> None:
        if not self._cpus:
            return
        most = 1 + max(int(cpu.split(":")[1]) for cpu in self._cpus)
        host = self._tf.config.list_physical_devices("CPU")[0]
        there_are = len(self._tf.config.get_logical_device_configuration(host) or ())
        if there_are < most:
            parts = [self._tf.config.LogicalDeviceConfiguration()] * most
            self._tf.config.set_logical_device_configuration(host, parts)


def maxing_net(widths: Widths, **named: Any) -> keras.Model:  # noqa: ANN401 (Keras' arguments)
    """The article's net for digits of 28 by 28 pixels."""
    import keras

    *convolutions, dense = widths
    layers: list[object] = [keras.Input((SIDE, SIDE, 1))]
    for filters in convolutions:
        layers += [
            keras.layers.Conv2D(width, 3, padding="same", activation="relu") for width in filters
        ]
        layers.append(keras.layers.MaxPooling2D())
    layers.append(keras.layers.Flatten())
    layers += [keras.layers.Dense(width, activation="relu") for width in dense]
    layers.append(keras.layers.Dense(CLASSES, activation="softmax"))
    return keras.Sequential(layers, **named)


def made_up_digits(samples: int) -> tuple[Any, Any]:
    """Random images of MNIST's size, the same at every call; nothing is downloaded.

    Returns:
        ``x``, float32 (samples, 28, 28, 1), and ``y``, float32 (samples, 10), one-hot.
    """
    import numpy as np

    random = np.random.default_rng(0)
    x = random.random((samples, SIDE, SIDE, 1), dtype=np.float32)
    return x, np.eye(CLASSES, dtype=np.float32)[random.integers(0, CLASSES, samples)]


def _tensorflow() -> Any:  # noqa: ANN401 (TensorFlow has no types)
    # Only TensorFlow splits batches by ratios, and stand-ins must not be timed.
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.pop("GPUMON_STAND_IN_GPUS", None)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow
    except ModuleNotFoundError as error:
        raise SourceUnavailableError(
            "TensorFlow is not installed (`pip install tensorflow`); "
            "--simulate needs neither it nor a GPU"
        ) from error
    return tensorflow


def _is_out_of_memory(error: Exception) -> bool:
    message = f"{type(error).__name__} {error}".lower()
    return any(text in message for text in _OUT_OF_MEMORY)
