"""The border between the user's training and the hooks: no error of the hooks crosses it.

Use the first that fits:

- ``passes_through``: marks a function that makes a call of the run's own, such as a step or the
  fetch of a batch. It must let that call's errors pass, and does its own work behind a guard.
- ``guards_itself``: marks a hook with its own ``try``, for what is called in each step.
- ``Guard.wrap_hook``: wraps a Keras callback method; ``Guard.wrap``: any other function. Both
  report to the ``Guard`` of the run. After the first error, what ``wrap`` made does nothing.
- ``fail_quietly``: decorates a method that a trainer calls on an object of ours; errors go to the
  object's ``_fail``.
- ``quietly``: calls a function once and ignores its error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any, Final, TypeVar

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

PASS_THROUGH: Final[set[CodeType]] = set()
GUARDS_ITSELF: Final[set[CodeType]] = set()


def passes_through(function: Function) -> Function:
    """Mark a function that makes a call of the run's and lets its errors pass."""
    PASS_THROUGH.add(function.__code__)
    return function


def guards_itself(function: Function) -> Function:
    """Mark a function that makes all its calls into the hooks inside ``try``.

    For what is called in each step: a wrapper costs a tenth of a microsecond a call.
    """
    GUARDS_ITSELF.add(function.__code__)
    return function


class Guard:
    """Runs hooks until one of them raises; from then on they do nothing.

    Attributes:
        is_intact: Whether none has raised yet.
    """

    def __init__(self, give_up: Callable[[Exception], object]) -> None:
        """Call ``give_up`` with the first error, once."""
        self._give_up = give_up
        self.is_intact = True

    def wrap(self, hook: Callable[..., T]) -> Callable[..., T | None]:
        """Return ``hook`` as a function that never raises and returns ``None`` after an error."""

        def wrapped(*args: Any) -> T | None:  # noqa: ANN401
            if self.is_intact:
                try:
                    return hook(*args)
                except Exception as error:  # noqa: BLE001 (training goes on)
                    self.fail(error)
            return None

        return wrapped

    def wrap_hook(self, hook: Callable[[Any, Any], object]) -> Callable[..., None]:
        """Return ``hook`` as a Keras callback method, which takes an index and logs, or either."""

        def wrapped(first: Any = None, logs: Any = None) -> None:  # noqa: ANN401
            try:
                hook(first, logs)
            except Exception as error:  # noqa: BLE001
                self.fail(error)

        return wrapped

    def reset(self) -> None:
        self.is_intact = True

    def fail(self, error: Exception) -> None:
        """Give up because of ``error``, unless that has happened already."""
        if self.is_intact:
            self.is_intact = False
            with contextlib.suppress(Exception):
                self._give_up(error)


def quietly(act: Callable[..., T], *args: Any, **named: Any) -> T | None:  # noqa: ANN401
    """Call ``act`` and return its result, or ``None`` if it raises."""
    try:
        return act(*args, **named)
    except Exception:  # noqa: BLE001
        return None


def fail_quietly(method: Callable[..., T]) -> Callable[..., T | None]:
    """Wrap a method that a trainer calls: an error goes to ``_fail``, and ``None`` is returned.

    Its object may name errors in ``passes`` that end a run on purpose.
    """

    @wraps(method)
    def act(self: Any, *args: Any, **named: Any) -> T | None:  # noqa: ANN401
        try:
            return method(self, *args, **named)
        except Exception as error:
            if isinstance(error, getattr(self, "passes", ())):  # ``self`` may be anything
                raise
            with contextlib.suppress(Exception):
                self._fail(error)
            return None

    return act
