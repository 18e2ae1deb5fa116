"""The border between the user's training and the hooks: no error or warning of ours ends a run.

Use the first that fits:

- ``passes_through``: marks a function that makes a call of the run's own, such as a step or the
  fetch of a batch. It must let that call's errors pass, and does its own work behind a guard.
- ``guards_itself``: marks a hook with its own ``try``, for what is called in each step.
- ``Guard.wrap_hook``: wraps a Keras callback method; ``Guard.wrap``: any other function. Both
  report to the ``Guard`` of the run. After the first error, what ``wrap`` made does nothing.
- ``fail_quietly``: decorates a method that a trainer calls on an object of ours; errors go to the
  object's ``_fail``.
- ``quietly``: calls a function once and ignores its error.

``warn_quietly`` warns, even where warnings are errors; ``captures_left_alone`` lets a thread of the
hooks use CUDA while the run captures a graph.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import count
from types import CodeType
from typing import Any, Final, TypeVar

from trainer_hooks.ring.call_frames import users_frame

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


def warn_quietly(text: str) -> None:
    """Warn, located at a line of the user's code."""
    with contextlib.suppress(Exception):  # a warning as an error, or nowhere to write it
        frame = users_frame(sys._getframe())
        warnings.warn_explicit(
            text,
            RuntimeWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )


class QuietWarningOnce:
    """Warn at the first call in this process only."""

    def __init__(self) -> None:
        self._calls = count()  # ``next`` is atomic: only one thread gets 0

    def __call__(self, text: str) -> None:
        if next(self._calls) == 0:
            warn_quietly(text)


class QuietWarningPerName:
    """Warn once per name, and about ``most`` names at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._first: dict[str, object] = {}

    def __call__(self, name: str, text: str) -> None:
        """Warn about a name; the last warning says that it is the last."""
        if len(self._first) >= self._most:
            return
        call = object()
        if self._first.setdefault(name, call) is not call:  # atomic, too
            return
        if len(self._first) >= self._most:
            text += f" (no more of these warnings: {self._most} are enough)"
        warn_quietly(text)


_THREAD_LOCAL: Final = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``: calls of this thread do not end others' captures."""


@contextlib.contextmanager
def captures_left_alone() -> Iterator[None]:
    """Let this thread use CUDA while another one captures a graph.

    By default (``CU_STREAM_CAPTURE_MODE_GLOBAL``), querying an event or allocating memory on any
    thread ends the capture with an error in the user's code. Does nothing without NVIDIA's driver.
    """
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        yield
        return
    mode = ctypes.c_int(_THREAD_LOCAL)
    exchange(ctypes.byref(mode))  # ``mode`` now holds the previous one
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))
