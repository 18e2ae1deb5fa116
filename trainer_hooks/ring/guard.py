"""The border between the user's training and the hooks: no error of the hooks crosses it.

Every hook that a run calls is wrapped by a ``Guard``, or guards itself. A function through
which the run makes a call of its own, such as a step or the fetch of a batch, must let that
call's errors pass: it is marked ``passes_through`` and does its own work behind a guard.
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

        def guarded(*args: Any) -> T | None:  # noqa: ANN401
            if self.is_intact:
                try:
                    return hook(*args)
                except Exception as error:  # noqa: BLE001 (training goes on)
                    self.fail(error)
            return None

        return guarded

    def wrap_hook(self, hook: Callable[[Any, Any], object]) -> Callable[..., None]:
        """Return ``hook`` as a Keras callback method, which takes an index and logs, or either."""

        def guarded(first: Any = None, logs: Any = None) -> None:  # noqa: ANN401
            try:
                hook(first, logs)
            except Exception as error:  # noqa: BLE001
                self.fail(error)

        return guarded

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


def guarded(method: Callable[..., T]) -> Callable[..., T | None]:
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
