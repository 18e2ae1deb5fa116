"""A warning that cannot end a training, not even where warnings are errors."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from itertools import count
from types import FrameType
from typing import Final

HOOKS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
EXAMPLES: Final = os.path.join(HOOKS, "examples", "")  # noqa: PTH118
"""A folder that stands for a user's own."""
_OURS: Final = tuple(
    os.path.join(folder, "")  # noqa: PTH118
    for folder in (HOOKS, os.path.join(os.path.dirname(HOOKS), "gpumon"))  # noqa: PTH118, PTH120
)
_LIBRARIES: Final = (os.path.join(os.path.dirname(os.__file__), ""), "<frozen ")  # noqa: PTH118, PTH120
_PACKAGES: Final = ("/site-packages/", "/dist-packages/")


def warn_quietly(text: str, *, callers_up: int = 2) -> None:
    """Warn, with a line of the user's as the place: no file of ours, no library's.

    Args:
        text: What to say.
        callers_up: Look for that line from here on: 1 is the caller.
    """
    with contextlib.suppress(Exception):  # a warning as an error, or nowhere to write it
        frame = _users_frame(_up(sys._getframe(), callers_up))
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


def _users_frame(start: FrameType) -> FrameType:
    """The nearest caller in the user's own code; else in anybody's but ours."""
    foreign: FrameType | None = None
    frame: FrameType | None = start
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(EXAMPLES) or not file.startswith(_OURS):
            if not _is_a_library(file):
                return frame
            foreign = foreign or frame
        frame = frame.f_back
    return foreign or start


def _is_a_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or any(folder in file for folder in _PACKAGES)
