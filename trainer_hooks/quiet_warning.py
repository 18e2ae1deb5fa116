"""A warning that cannot end a training, not even where warnings are errors."""

from __future__ import annotations

import contextlib
import warnings


def warn_quietly(text: str) -> None:
    """Warn, with the caller's caller as the place."""
    with contextlib.suppress(Warning):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
