"""A callback that was given as its class, without brackets: ``callbacks=[PhaseTagger]``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any, Final

from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.ring.guard import carries
from trainer_hooks.ring.quiet_warning import warn_quietly

_OWNERS: Final = ("self", "trainer")
"""What whoever goes through its callbacks is called there: Keras' ``CallbackList``, Lightning."""


class AlsoOnTheClass:
    """Decorates a method that a trainer calls first, before any other, on each of its callbacks.

    Called on an instance it is the method. Called on the class, it puts an
    instance into the trainer's list in the place of the class, warns once of
    the brackets, and is called on that: so the training gets what was meant.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @carries("a method that is looked up")
    def __get__(self, instance: object | None, owner: type) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(self._method, instance)

        @wraps(self._method)
        def on_the_class(*args: Any, **named: Any) -> Any:  # noqa: ANN401
            if args and isinstance(args[0], owner):  # as ``PhaseTagger.set_model(self, model)``
                return self._method(*args, **named)
            made = _in_its_place(owner)
            method = getattr(made, self._method.__name__, None)
            return None if method is None else method(*args, **named)

        return on_the_class


def _in_its_place(kind: type) -> object | None:
    """The instance that now stands for the class among the callbacks; ``None``: none is told."""
    callbacks, name = _callbacks_with(kind), kind.__name__
    if callbacks is None:
        warn_quietly(f"{name} is a class, and does nothing: write {name}(), with brackets")
        return None
    made = _made_of(kind)
    for at, callback in enumerate(callbacks):
        if callback is kind:
            callbacks[at] = made
    warn_quietly(
        f"callbacks=[{name}] names the class, and gpumon takes {type(made).__name__}() for it: "
        f"write {name}(), with brackets"
    )
    return made


def _made_of(kind: type) -> object:
    """An instance; of a class below it where it cannot be made of nothing."""
    for base in kind.__mro__[:-1]:
        with contextlib.suppress(Exception):
            made: object = base()
            return made
    return object()


def _callbacks_with(kind: type) -> list[Any] | None:
    def holds_it(owner: Any) -> bool:  # noqa: ANN401
        callbacks = getattr(owner, "callbacks", None)
        return isinstance(callbacks, list) and any(callback is kind for callback in callbacks)

    for name in _OWNERS:
        owner = caller_named(name, holds_it)
        if owner is not None:
            callbacks: list[Any] = owner.callbacks
            return callbacks
    return None
