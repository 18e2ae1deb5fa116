"""Shell patterns of folders, made into the folders that are there now."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path


def matching_paths(patterns: Iterable[str]) -> Iterator[Path]:
    """Every path that fits a pattern, each once, in the order of the patterns."""
    seen: set[str] = set()
    for pattern in patterns:
        for name in sorted(glob.glob(pattern)):  # noqa: PTH207 (absolute)
            if name not in seen:
                seen.add(name)
                yield Path(name)
