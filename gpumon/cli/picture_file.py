"""Where a picture or a page is written to, and what draws it: checked before anything is read."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from gpumon.cli.command import complain
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


def can_draw() -> bool:
    """Whether matplotlib is there; else a sentence on standard error says how to install it.

    Who asks for a picture that cannot be drawn has the report all the same.
    """
    try:
        import gpumon.outlets.plot.html  # noqa: F401
    except ImportError:
        complain(
            "no picture and no page is written, for both need matplotlib: "
            f"`{sys.executable} -m pip install 'matplotlib>=3.8'`"
        )
        return False
    return True
