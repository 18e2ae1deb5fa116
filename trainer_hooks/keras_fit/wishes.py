"""What the user of a ``PhaseTagger`` wants of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainer_hooks.keras_fit.nvtx_pen import Ranges


class Wishes(NamedTuple):
    """What the user wants of a tagged training.

    Attributes:
        logs: Whether epochs get keys in their ``logs``.
        ranges: What opens NVTX ranges; ``None``: none are wanted.
        warn: Told of trouble, as a sentence.
    """

    logs: bool
    ranges: Ranges | None
    warn: Callable[[str], None]
