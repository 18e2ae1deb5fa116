"""Separate a callback's own ``fit`` from one that another callback runs inside it."""

from __future__ import annotations

from typing import Any

import keras

from trainer_hooks.ring.call_frames import caller_named, is_calling
from trainer_hooks.ring.guard import fail_quietly, warn_quietly
from trainer_hooks.trainers.tagger import RefusesClass


class OwnFitCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """A callback of the outermost ``fit`` that it was given to.

    Keras also calls it from a nested ``fit``. Each ``fit`` has its own ``CallbackList``, which is
    found among the callers: nothing has to be undone if the nested ``fit`` raises.
    """

    async_safe = True
    """Keras need not wait for each step because of this callback."""

    def __init__(self, name: str, task: str, *, raises: type[Exception]) -> None:
        """Belong to no fit yet.

        Args:
            name: Of the callback's class.
            task: What it does, as a verb.
            raises: What it ends a run with; any other error is its own mistake.
        """
        super().__init__()
        self._name, self._task, self.passes = name, task, (raises,)
        self._has_failed = False
        self._own_list: Any | None = None
        self._is_watching = False

    @RefusesClass
    @fail_quietly
    def set_params(self, params: Any) -> None:  # noqa: ANN401
        if not self._is_inside_own_fit():
            super().set_params(params)

    def _claim_fit(self) -> bool:
        """Make the calling ``fit`` the callback's own, unless it is nested in that.

        Returns:
            ``False`` in a nested ``fit``, with a warning.
        """
        if self._is_inside_own_fit():
            warn_quietly(
                f"{self._name} watches the fit it was given to first, not a fit inside one of its "
                f"callbacks: give that one its own {self._name}"
            )
            return False
        self._own_list = _calling_callback_list()
        return True

    @fail_quietly
    def _is_inside_own_fit(self) -> bool:
        """Whether the calling ``fit`` is nested in the own. Only for when a ``fit`` begins."""
        own = self._own_list
        return _calling_callback_list() is not own and is_calling(own)

    def _is_called_by_own_fit(self) -> bool:
        """Whether the own ``fit`` is calling. Callable from any thread."""
        return _calling_callback_list() is self._own_list

    def _fail(self, error: Exception) -> None:
        """Continue the run without the callback."""
        self._is_watching = False
        if not self._has_failed:
            self._has_failed = True
            warn_quietly(
                f"{self._name} no longer {self._task}, because it failed: "
                f"{type(error).__name__}: {error}"
            )


def _calling_callback_list() -> Any | None:  # noqa: ANN401
    return caller_named("self", lambda found: isinstance(found, keras.callbacks.CallbackList))
