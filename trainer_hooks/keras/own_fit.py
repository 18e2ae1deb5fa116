"""Which ``fit`` a callback belongs to, where another callback of it trains or evaluates with it."""

from __future__ import annotations

from typing import Any

import keras

from trainer_hooks.ring.frames import caller_named, is_calling
from trainer_hooks.ring.quiet_warning import warn_quietly


class OwnFit:
    """The outermost ``fit`` that a callback is in; one inside is not its own.

    Keras tells a callback of both alike. But each has a ``CallbackList``, which is found among
    the callers: so nothing is left to undo where the one inside raises.
    """

    def __init__(self, name: str) -> None:
        """None yet.

        Args:
            name: Of the callback's class.
        """
        self._name = name
        self._callback_list: Any | None = None

    def begins(self) -> bool:
        """``fit`` calls ``on_train_begin``: from now on it is this callback's own.

        Returns:
            ``False`` where it is inside the own one, which stays that; a warning says so.
        """
        if self.is_around():
            warn_quietly(
                f"{self._name} sees to the fit that it was given to first, and not the one inside "
                f"a callback of that: give it a {self._name} of its own",
                callers_up=4,
            )
            return False
        self._callback_list = _list_that_calls()
        return True

    def is_around(self) -> bool:
        """Whether who calls is inside the own fit, and is another. To be asked where it begins."""
        own = self._callback_list
        return _list_that_calls() is not own and is_calling(own)

    def calls(self) -> bool:
        """Whether the own fit calls. May be asked on any thread."""
        return _list_that_calls() is self._callback_list


def _list_that_calls() -> Any | None:  # noqa: ANN401
    return caller_named("self", lambda found: isinstance(found, keras.callbacks.CallbackList))
