"""A warning that cannot end a training, not even where warnings are errors."""

from __future__ import annotations

import contextlib
import sys
import warnings
from itertools import count
from types import FrameType

from trainer_hooks.ring.frames import users_frame


def warn_quietly(text: str, *, callers_up: int = 2) -> None:
    """Warn, with a line of the user's as the place: no file of ours, no library's.

    Args:
        text: What to say.
        callers_up: Look for that line from here on: 1 is the caller.
    """
    with contextlib.suppress(Exception):  # a warning as an error, or nowhere to write it
        frame = users_frame(_up(sys._getframe(), callers_up))
        warnings.warn_explicit(
            text,
            RuntimeWarning,
            frame.f_code.co_filename,
            frame.f_lineno,
            module=frame.f_globals.get("__name__"),
            registry=frame.f_globals.setdefault("__warningregistry__", {}),
        )


class QuietWarningOnce:
    """Warns at its first call in this process, and never again."""

    def __init__(self) -> None:
        self._calls = count()  # one atomic step: two threads do not both come first

    def __call__(self, text: str, *, callers_up: int = 2) -> None:
        """Warn as ``warn_quietly`` does, which see."""
        if next(self._calls) == 0:
            warn_quietly(text, callers_up=callers_up + 1)


class QuietWarningPerWord:
    """Warns once of each word in this process, and of so many words at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._first: dict[str, object] = {}

    def __call__(self, word: str, text: str, *, callers_up: int = 2) -> None:
        """Warn of a word as ``warn_quietly`` does, which see; the last warning says that it is."""
        if len(self._first) >= self._most:
            return
        call = object()
        if self._first.setdefault(word, call) is not call:  # one atomic step, as above
            return
        if len(self._first) >= self._most:
            text += f" (no more of these warnings: {self._most} are enough)"
        warn_quietly(text, callers_up=callers_up + 1)


def _up(frame: FrameType, callers: int) -> FrameType:
    for _ in range(callers):
        frame = frame.f_back or frame
    return frame
