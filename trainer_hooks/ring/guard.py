"""The border between somebody's training and the hooks: no error of ours crosses it.

Whatever calls ours on a training's behalf does so through a ``Guard``. A function that passes on a
call of theirs, as a step or the fetch of a batch, cannot be called so, for what theirs raises must
go on: it is marked ``carries``, and does nothing of its own but through a guard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from types import CodeType
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])

CARRIERS: Final[dict[CodeType, str]] = {}
"""Functions that a call of theirs goes through, and what it is; each as it is first made."""
GUARDS_ITSELF: Final[set[CodeType]] = set()
"""Functions whose own calls of ours are inside a ``try``, each as it is first made."""


def carries(what: str) -> Callable[[Function], Function]:
    """Mark a function that passes on a call of theirs, and says what that is."""

    def mark(function: Function) -> Function:
        CARRIERS.setdefault(function.__code__, what)
        return function

    return mark


def guards_itself(function: Function) -> Function:
    """Mark a function called in each step that catches its errors and hands them to ``fail``.

    A wrapper costs a tenth of a microsecond a call.
    """
    GUARDS_ITSELF.add(function.__code__)
    return function


class Guard:
    """Lets ours be called until it fails for the first time; from then on, nothing is done.

    Attributes:
        is_whole: Whether nothing has failed yet.
    """

    def __init__(self, give_up: Callable[[Exception], object]) -> None:
        """Let all pass; ``give_up`` is told of the first error, once."""
        self._give_up = give_up
        self.is_whole = True

    def calls(self, act: Callable[..., T]) -> Callable[..., T | None]:
        """``act``, but it never raises: ``None`` where it failed, now or before."""

        def guarded(*args: Any) -> T | None:  # noqa: ANN401
            if self.is_whole:
                try:
                    return act(*args)
                except Exception as error:  # noqa: BLE001 (the training goes on)
                    self.fail(error)
            return None

        return guarded

    def hook(self, act: Callable[[Any, Any], object]) -> Callable[..., None]:
        """``act`` as a method of a Keras callback: of an epoch, a batch or neither, and logs."""

        def guarded(first: Any = None, logs: Any = None) -> None:  # noqa: ANN401
            try:
                act(first, logs)
            except Exception as error:  # noqa: BLE001
                self.fail(error)

        return guarded

    def mend(self) -> None:
        """Let all pass again."""
        self.is_whole = True

    def fail(self, error: Exception) -> None:
        """Something of ours went wrong: give up, once."""
        if self.is_whole:
            self.is_whole = False
            with contextlib.suppress(Exception):
                self._give_up(error)


def quietly(act: Callable[..., T], *args: Any, **named: Any) -> T | None:  # noqa: ANN401
    """What it returns, or ``None`` where it raised: somebody else notices what is missing."""
    try:
        return act(*args, **named)
    except Exception:  # noqa: BLE001
        return None


class FailsQuietly(Protocol):
    """A callback of ours, whose methods are ``guarded``.

    Attributes:
        passes: What it ends a training with, on purpose.
    """

    passes: tuple[type[Exception], ...]

    def _fail(self, error: Exception) -> None:
        """Go on without: one of its methods made a mistake."""


def guarded(method: Callable[..., T]) -> Callable[..., T | None]:
    """A method that a trainer calls: its mistakes go to ``_fail``, and it then returns ``None``."""

    @wraps(method)
    def act(self: FailsQuietly, *args: Any, **named: Any) -> T | None:  # noqa: ANN401
        try:
            return method(self, *args, **named)
        except Exception as error:
            if isinstance(error, self.passes):
                raise
            with contextlib.suppress(Exception):
                self._fail(error)
            return None

    return act
