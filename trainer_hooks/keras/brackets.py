"""Callbacks of our own around all others: they see when callbacks run and how long each takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import keras

from trainer_hooks.ring.guard import Guard, passes_through
from trainer_hooks.ring.phase_modes import PREDICT_MODE, VALIDATION_MODE
from trainer_hooks.taps import keras_private as private

_CHECKPOINTS: Final = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
_BATCH_BEGIN: Final = "on_train_batch_begin"
_BATCH_END: Final = "on_train_batch_end"
_ALIAS: Final = {_BATCH_BEGIN: "on_batch_begin", _BATCH_END: "on_batch_end"}
"""Old names, which Keras still calls."""
_MARKED: Final = ("on_epoch_begin", "on_epoch_end", "on_train_end", "on_test_begin", "on_test_end")
_OURS: Final = ("trainer_hooks.keras.phase_tagger", "trainer_hooks.keras.brackets")


class Watcher(Protocol):
    """Receives what the brackets see; every method may be called from any thread.

    Attributes:
        guard: Before all of them.
    """

    @property
    def guard(self) -> Guard: ...
    def epoch_begins(self, epoch: int) -> None: ...
    def epoch_ends(self, logs: Any) -> None: ...  # noqa: ANN401
    def callbacks_begin(self) -> None: ...
    def callbacks_end(self) -> None: ...
    def epoch_begin_callbacks_done(self) -> None: ...
    def batch_announced(self, batch: int, logs: object = None) -> None: ...
    def batch_begins(self, batch: int, logs: object = None) -> None: ...
    def step_returned(self, batch: int, logs: object = None) -> None: ...
    def batch_callbacks_end(self, batch: int, logs: object = None) -> None: ...
    def slot_of(self, callback: object) -> int: ...
    def after(self, slot: int, *, is_checkpoint: bool) -> Callable[..., None]: ...
    def checkpoint_begins(self) -> None: ...
    def flush_begins(self) -> Any: ...  # noqa: ANN401
    def flush_ends(self, before: Any) -> None: ...  # noqa: ANN401
    def run_begins(self, mode: int) -> None: ...
    def run_ends(self) -> None: ...
    def train_ends(self) -> None: ...


Hook = Callable[..., object]
"""Receives the number of an epoch or batch, where there is one, and the logs."""


class _Bracket(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """A callback with the given methods only.

    ``hooks`` guard themselves; ``guard`` wraps the rare ones.
    """

    async_safe = True

    def __init__(self, hooks: dict[str, Hook], guard: Guard | None = None, **rare: Hook) -> None:
        super().__init__()
        for name, hook in hooks.items():
            setattr(self, name, hook)
        for name, hook in rare.items():
            assert guard is not None
            setattr(self, name, guard.wrap_hook(hook))
        _skip_default_hooks(self)


def _first(watcher: Watcher, *, wants_batch_begin: bool) -> _Bracket:
    """Return the callback that is called before every other."""
    begins: dict[str, Hook] = {_BATCH_BEGIN: watcher.batch_announced} if wants_batch_begin else {}
    return _Bracket(
        {_BATCH_END: watcher.step_returned} | begins,
        watcher.guard,
        on_epoch_begin=lambda epoch, _: watcher.epoch_begins(epoch),
        on_epoch_end=lambda _, logs: watcher.epoch_ends(logs),
        on_train_end=lambda *_: watcher.callbacks_begin(),
        on_test_begin=lambda *_: watcher.run_begins(VALIDATION_MODE),
        on_test_end=lambda *_: watcher.callbacks_begin(),
        on_predict_begin=lambda *_: watcher.run_begins(PREDICT_MODE),
    )


def _last(watcher: Watcher, *, wants_batch_begin: bool, wants_batch_end: bool) -> _Bracket:
    """Return the callback that is called after every other."""
    begins: dict[str, Hook] = {_BATCH_BEGIN: watcher.batch_begins} if wants_batch_begin else {}
    ends: dict[str, Hook] = {_BATCH_END: watcher.batch_callbacks_end} if wants_batch_end else {}
    return _Bracket(
        begins | ends,
        watcher.guard,
        on_epoch_begin=lambda *_: watcher.epoch_begin_callbacks_done(),
        on_epoch_end=lambda *_: watcher.callbacks_end(),
        on_train_end=lambda *_: watcher.train_ends(),
        on_test_end=lambda *_: watcher.run_ends(),
        on_predict_end=lambda *_: watcher.run_ends(),
    )


class Brackets:
    """Our callbacks in the user's ``CallbackList``, until ``remove``.

    Attributes:
        callback_list: Keras' list.
    """

    def __init__(self, callback_list: Any, watcher: Watcher, *, ends_here: bool) -> None:  # noqa: ANN401
        """Put them in. The list is replaced, not changed, because Keras is iterating over it.

        Args:
            callback_list: Keras' list.
            watcher: Receives the calls.
            ends_here: Whether callbacks at a batch's end run on the training thread.
        """
        self.callback_list = callback_list
        self._watcher = watcher
        self._ends_here = ends_here
        self._original = callback_list.callbacks
        self._middle = [
            placed for callback in self._original for placed in self._with_marks(callback)
        ]
        self._placed = callback_list.callbacks
        self._place(wants_batch_begin=True, wants_batch_end=True)
        flush = getattr(callback_list, private.FLUSH, None)
        if flush is not None and not ends_here:
            vars(callback_list)[private.FLUSH] = _watched(flush, watcher)

    def skip_batch_begin(self) -> None:
        """Save some microseconds a step, if no other callback acts before a batch."""
        if not any(_BATCH_BEGIN in self._methods_of(callback) for callback in self._original):
            # On Keras' own threads only the results are of interest, not what follows them.
            self._place(wants_batch_begin=False, wants_batch_end=self._ends_here)

    def remove(self) -> None:
        vars(self.callback_list).pop(private.FLUSH, None)
        if self.callback_list.callbacks is self._placed:
            self.callback_list.callbacks = self._original

    def _place(self, *, wants_batch_begin: bool, wants_batch_end: bool) -> None:
        if self.callback_list.callbacks is not self._placed:
            return  # other code has replaced the list
        begin, end = wants_batch_begin, wants_batch_end
        first = _first(self._watcher, wants_batch_begin=begin)
        last = _last(self._watcher, wants_batch_begin=begin, wants_batch_end=end)
        self._placed = [first, *self._middle, last]
        self.callback_list.callbacks = self._placed

    def _with_marks(self, callback: Any) -> list[Any]:  # noqa: ANN401
        methods = self._methods_of(callback)
        if not methods:
            if type(callback).__module__.startswith(_OURS):
                _skip_default_hooks(callback)
            return [callback]
        watcher, is_checkpoint = self._watcher, isinstance(callback, _CHECKPOINTS)
        after = watcher.after(watcher.slot_of(callback), is_checkpoint=is_checkpoint)
        placed = [callback, _Bracket(dict.fromkeys(methods, after))]
        if is_checkpoint:
            begins = watcher.guard.wrap_hook(lambda *_: watcher.checkpoint_begins())
            placed.insert(0, _Bracket(dict.fromkeys(methods, begins)))
        return placed

    def _methods_of(self, callback: Any) -> list[str]:  # noqa: ANN401
        """Return the methods in which a callback does anything on the training thread."""
        if type(callback).__module__.startswith(_OURS):
            return []
        batch = [_BATCH_BEGIN] + [_BATCH_END] * (self._ends_here and not _is_idle_in(callback))
        return [name for name in (*_MARKED, *batch) if _overrides(callback, name)]


def is_bracketed(callback_list: Any) -> bool:  # noqa: ANN401
    """Whether another tagger already has brackets in that ``CallbackList``."""
    return any(isinstance(callback, _Bracket) for callback in callback_list.callbacks)


def _watched(flush: Callable[[], None], watcher: Watcher) -> Callable[[], None]:
    """Return Keras' own wait for its threads, reported to the watcher."""
    begins = watcher.guard.wrap(watcher.flush_begins)
    ends = watcher.guard.wrap(watcher.flush_ends)

    @passes_through
    def flushing() -> None:
        before = begins()
        try:
            flush()
        finally:
            ends(before)

    return flushing


def _skip_default_hooks(callback: Any) -> None:  # noqa: ANN401
    """Replace Keras' default batch methods, which take several calls to do nothing."""
    for name in (_BATCH_BEGIN, _BATCH_END):
        if not _overrides(callback, name):
            setattr(callback, name, _nothing)


@passes_through
def _nothing(batch: int, logs: object = None) -> None:
    pass


def _is_idle_in(callback: Any) -> bool:  # noqa: ANN401
    """Whether a checkpoint callback does nothing at a batch's end."""
    return (
        type(callback) is keras.callbacks.ModelCheckpoint
        and getattr(callback, "save_freq", None) == "epoch"
    )


def _overrides(callback: object, name: str) -> bool:
    """Whether a callback does anything there that Keras' empty method does not."""
    return any(
        alias in vars(callback)
        or getattr(type(callback), alias, None) is not getattr(keras.callbacks.Callback, alias)
        for alias in (name, _ALIAS.get(name, name))
    )
