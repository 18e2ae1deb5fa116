"""A warning that cannot end a training, not even where warnings are errors."""

from __future__ import annotations

import contextlib
import sys
import warnings
from itertools import count

from trainer_hooks.ring.call_frames import users_frame


def warn_quietly(text: str) -> None:
    """Warn, with a line of the user's as the place: no file of ours, no library's."""
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
    """Warns at its first call in this process, and never again."""

    def __init__(self) -> None:
        self._calls = count()  # one atomic step: two threads do not both come first

    def __call__(self, text: str) -> None:
        if next(self._calls) == 0:
            warn_quietly(text)


class QuietWarningPerName:
    """Warns once of each word in this process, and of so many words at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._first: dict[str, object] = {}

    def __call__(self, word: str, text: str) -> None:
        """Warn of a word; the last warning says that it is."""
        if len(self._first) >= self._most:
            return
        call = object()
        if self._first.setdefault(word, call) is not call:  # one atomic step, as above
            return
        if len(self._first) >= self._most:
            text += f" (no more of these warnings: {self._most} are enough)"
        warn_quietly(text)
