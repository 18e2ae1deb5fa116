"""A warning that cannot end a training, not even where warnings are errors."""

from __future__ import annotations

import contextlib
import warnings
from itertools import count


def warn_quietly(text: str, *, callers_up: int = 2) -> None:
    """Warn, with the caller's caller as the place, or one further up."""
    with contextlib.suppress(Warning):
        warnings.warn(text, RuntimeWarning, stacklevel=callers_up + 1)


class QuietWarningOnce:
    """Warns at its first call in this process, and never again."""

    def __init__(self) -> None:
        self._calls = count()  # one atomic step: two threads do not both come first

    def __call__(self, text: str, *, callers_up: int = 2) -> None:
        """Warn, with the caller's caller as the place, or one further up."""
        if next(self._calls) == 0:
            warn_quietly(text, callers_up=callers_up + 1)
