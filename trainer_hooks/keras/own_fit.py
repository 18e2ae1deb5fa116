"""Which ``fit`` a callback belongs to, where another callback of it trains or evaluates with it."""

from __future__ import annotations

from typing import Any

import keras

from trainer_hooks.ring.call_frames import caller_named, is_calling
from trainer_hooks.ring.guard import guarded
from trainer_hooks.ring.quiet_warning import warn_quietly
from trainer_hooks.trainers.tagger import RefusesClass


class OwnFitCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """A callback of the outermost ``fit`` that it is in; one inside is not its own.

    Keras tells a callback of both alike. But each has a ``CallbackList``, which is found among
    the callers: so nothing is left to undo where the one inside raises.
    """

    async_safe = True
    """Keras then need not wait for each step on account of this callback."""

    def __init__(self, name: str, task: str, *, raises: type[Exception]) -> None:
        """In no fit yet.

        Args:
            name: Of the callback's class.
            task: What it does, as a verb.
            raises: What it ends a training with; any other error is a mistake of its own.
        """
        super().__init__()
        self._name, self._task, self.passes = name, task, (raises,)
        self._has_failed = False
        self._own_list: Any | None = None
        self._is_watching = False

    @RefusesClass
    @guarded
    def set_params(self, params: Any) -> None:  # noqa: ANN401
        if not self._is_inside_own_fit():
            super().set_params(params)

    def _begins_own_fit(self) -> bool:
        """``fit`` calls ``on_train_begin``: from now on it is this callback's own.

        Returns:
            ``False`` where it is inside the own one, which stays that; a warning says so.
        """
        if self._is_inside_own_fit():
            warn_quietly(
                f"{self._name} sees to the fit that it was given to first, and not the one inside "
                f"a callback of that: give it a {self._name} of its own"
            )
            return False
        self._own_list = _list_that_calls()
        return True

    @guarded
    def _is_inside_own_fit(self) -> bool:
        """Whether who calls is inside the own fit, and is another. To be asked where it begins."""
        own = self._own_list
        return _list_that_calls() is not own and is_calling(own)

    def _is_called_by_own_fit(self) -> bool:
        """Whether the own fit calls. May be asked on any thread."""
        return _list_that_calls() is self._own_list

    def _fail(self, error: Exception) -> None:
        """After a mistake of our own the training goes on without."""
        self._is_watching = False
        if not self._has_failed:
            self._has_failed = True
            warn_quietly(
                f"{self._name} {self._task} no longer, for it failed: "
                f"{type(error).__name__}: {error}"
            )


def _list_that_calls() -> Any | None:  # noqa: ANN401
    return caller_named("self", lambda found: isinstance(found, keras.callbacks.CallbackList))
