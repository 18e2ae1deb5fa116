"""Callbacks of the compared training runs: none, empty ones, gpumon's and nvitop's."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import keras


class EmptyCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """A user's callback that does nothing."""

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        pass


def no_callbacks() -> list[Any]:
    """Keras alone."""
    return []


def empty_callback() -> list[Any]:
    """One with nothing in it."""
    return [EmptyCallback()]


def two_callbacks() -> list[Any]:
    """As many as gpumon has Keras call in each step, with nothing in them."""
    callbacks = [EmptyCallback(), EmptyCallback()]
    for callback in callbacks:
        callback.async_safe = True
    return callbacks


def gpumon_callback() -> list[Any]:
    """All that a user of gpumon adds."""
    from trainer_hooks import PhaseTagger

    return [PhaseTagger()]


def gpumon_and_empty() -> list[Any]:
    """The same with a callback that Keras must wait for."""
    return [*gpumon_callback(), EmptyCallback()]


def nvitop_callback() -> list[Any]:
    """nvitop's, which is a callback of the Keras inside TensorFlow."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is deprecated
        from nvitop.callbacks.keras import GpuStatsLogger

        return [GpuStatsLogger(1)]


def ending_callback() -> list[Any]:
    """One that reads of the end of each batch, as Keras' progress bar does."""

    class Ending(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            pass

    return [Ending()]


def ending_and_four() -> list[Any]:
    """Beside it as many as gpumon then has Keras call in each step, with nothing in them."""
    return [*ending_callback(), *two_callbacks(), *two_callbacks()]


def gpumon_and_ending() -> list[Any]:
    """What a user has who lets Keras draw its progress bar."""
    return [*gpumon_callback(), *ending_callback()]


CALLBACKS: dict[str, Callable[[], list[Any]]] = {
    "bare": no_callbacks,
    "empty": empty_callback,
    "gpumon": gpumon_callback,
    "two": two_callbacks,
    "gpumon+empty": gpumon_and_empty,
    "ending": ending_callback,
    "ending+four": ending_and_four,
    "gpumon+ending": gpumon_and_ending,
    "nvitop": nvitop_callback,
}
