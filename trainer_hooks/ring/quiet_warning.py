"""Warnings that cannot end a run, even where warnings are errors."""

from __future__ import annotations

import contextlib
import sys
import warnings
from itertools import count

from trainer_hooks.ring.call_frames import users_frame


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
