"""Callbacks of our own around everybody else's: when they run, and when they write checkpoints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

import keras

_CHECKPOINTS: Final = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
_MODES: Final = {"test": 1, "predict": 2}
_FRAMES_UP: Final = 8


class Watcher(Protocol):
    """What brackets tell what they see; every method may be called from any thread."""

    def epoch_begins(self, epoch: int) -> None: ...
    def callbacks_begin(self) -> None: ...
    def callbacks_end(self) -> None: ...
    def batch_begins(self) -> None: ...
    def step_returned(self) -> None: ...
    def batch_callbacks_end(self) -> None: ...
    def checkpoint_begin(self) -> None: ...
    def checkpoint_end(self) -> None: ...
    def run_begins(self, mode: int) -> None: ...
    def run_ends(self) -> None: ...
    def train_ends(self) -> None: ...


class _Bracket(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    async_safe = True

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher


class _First(_Bracket):
    """Comes before every other callback."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._watcher.epoch_begins(epoch)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self._watcher.callbacks_begin()

    def on_train_end(self, logs: object = None) -> None:
        self._watcher.callbacks_begin()

    def on_test_begin(self, logs: object = None) -> None:
        self._watcher.run_begins(_MODES["test"])

    def on_predict_begin(self, logs: object = None) -> None:
        self._watcher.run_begins(_MODES["predict"])


class _Last(_Bracket):
    """Comes after every other callback."""

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._watcher.callbacks_end()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self._watcher.callbacks_end()

    def on_train_end(self, logs: object = None) -> None:
        self._watcher.train_ends()

    def on_test_end(self, logs: object = None) -> None:
        self._watcher.run_ends()

    def on_predict_end(self, logs: object = None) -> None:
        self._watcher.run_ends()


class _FirstInEachBatch(_First):
    """... and hears of every batch."""

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self._watcher.callbacks_begin()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._watcher.step_returned()


class _LastInEachBatch(_Last):
    """... and hears of every batch."""

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self._watcher.batch_begins()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._watcher.batch_callbacks_end()


class _Around(_Bracket):
    """Comes right before, or right after, a callback that writes checkpoints."""

    def __init__(self, watcher: Watcher, tell: Callable[[], None]) -> None:
        super().__init__(watcher)
        self._tell = tell

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._tell()

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        self._tell()

    def on_train_end(self, logs: object = None) -> None:
        self._tell()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._tell()


class Brackets:
    """Our callbacks in somebody's ``CallbackList``, until ``remove``."""

    def __init__(self, callback_list: Any, watcher: Watcher, *, each_batch: bool) -> None:  # noqa: ANN401
        """Put them in. The list is replaced, not changed: Keras is iterating over it.

        Args:
            callback_list: Keras' ``CallbackList``.
            watcher: Told of what happens.
            each_batch: Tell of the callbacks of batches even where nobody has
                any but at their end on another thread: it costs each step some
                microseconds.
        """
        self.callback_list = callback_list
        self._original = callback_list.callbacks
        hears = each_batch or any(
            _overrides(callback, "on_train_batch_begin", "on_batch_begin")
            for callback in self._original
        )
        first, last = (_FirstInEachBatch, _LastInEachBatch) if hears else (_First, _Last)
        self._placed = [first(watcher), *self._middle(watcher), last(watcher)]
        callback_list.callbacks = self._placed

    def remove(self) -> None:
        """Leave the list as it was found."""
        if self.callback_list.callbacks is self._placed:
            self.callback_list.callbacks = self._original

    def _middle(self, watcher: Watcher) -> list[Any]:
        placed: list[Any] = []
        for callback in self._original:
            if isinstance(callback, _CHECKPOINTS):
                before = _Around(watcher, watcher.checkpoint_begin)
                after = _Around(watcher, watcher.checkpoint_end)
                placed += [before, callback, after]
            else:
                placed.append(callback)
        return placed


def _overrides(callback: object, *names: str) -> bool:
    """Whether a callback does anything there; Keras marks its own empty methods."""
    return not all(getattr(getattr(callback, name, None), "_is_default", False) for name in names)


def caller_named(name: str, fits: Callable[[Any], bool]) -> Any | None:  # noqa: ANN401
    """The local variable ``name`` of the nearest caller in which it fits.

    Keras hands a callback its model, but neither the list it is in nor the
    iterator that feeds ``fit``.
    """
    frame = sys._getframe(1)
    for _ in range(_FRAMES_UP):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        found = frame.f_locals.get(name)
        if found is not None and fits(found):
            return found
    return None
