"""Checks the path of a picture or a page, and matplotlib, before anything is read."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from gpumon.cli.command import complain
from gpumon.errors import UsageError


def check_path(path: str, source: str | None) -> None:
    """Refuse a path that is not a file, or that of the file to draw.

    Raises:
        UsageError: Says what to name instead.
    """
    if path in ("", "-"):
        raise UsageError("a picture or page cannot be written to standard output: name a file")
    with suppress(OSError, ValueError):  # one of them does not exist
        if source is not None and Path(path).samefile(source):
            raise UsageError(f"{path}: is the file to draw: name another one")


def can_draw() -> bool:
    """Return whether matplotlib is installed; otherwise print how to install it."""
    try:
        import gpumon.outlets.plot.html  # noqa: F401
    except ImportError:
        complain(
            "cannot write a picture or page without matplotlib: install it with "
            f"`{sys.executable} -m pip install 'matplotlib>=3.8'`"
        )
        return False
    return True
