"""Where a picture or a page is written to, and what draws it: checked before anything is read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpumon.errors import UsageError


def check_place(path: str, source: str | None) -> None:
    """Refuse a path that is none, or that of the file which is to be drawn.

    Raises:
        UsageError: Says what to name instead.
    """
    if path in ("", "-"):
        raise UsageError(
            "a picture or a page is a file of its own, not the standard output: name one"
        )
    with suppress(OSError, ValueError):  # one of them is not there
        if source is not None and Path(path).samefile(source):
            raise UsageError(f"{path}: is the file that is to be drawn; name another one")


@contextmanager
def needs_matplotlib() -> Iterator[None]:
    """Around the import of what draws.

    Raises:
        UsageError: matplotlib is not there; says how to install it.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"a picture needs matplotlib: `{sys.executable} -m pip install 'matplotlib>=3.8'`"
        ) from error
