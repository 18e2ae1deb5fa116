"""Inspect callers' frames without leaving references in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from gpumon.core.ring_format.facts import MAX_CLASS_NAME
from gpumon.core.wording import label_text

_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
_HOOKS: Final = os.path.join(_ROOT, "trainer_hooks", "")  # noqa: PTH118
_EXAMPLES: Final = os.path.join(_HOOKS, "examples", "")  # noqa: PTH118
"""Counts as a user's code."""
_OURS: Final = (_HOOKS, os.path.join(_ROOT, "gpumon", ""))  # noqa: PTH118
_LIBRARIES: Final = (os.path.join(os.path.dirname(os.__file__), ""), "<frozen ")  # noqa: PTH118, PTH120
_PACKAGES: Final = ("/site-packages/", "/dist-packages/")
_FRAMES_UP: Final = 12


def users_frame(start: FrameType) -> FrameType:
    """Return the nearest caller in the user's own code, else the nearest outside gpumon."""
    foreign: FrameType | None = None
    frame: FrameType | None = start
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users_own(file):
            return frame
        if not _is_ours(file):
            foreign = foreign or frame
        frame = frame.f_back
    return foreign or start


def users_line(*, calls_library: bool = False) -> str | None:
    """Return file and line of the nearest caller in the user's own code, ``None`` without one.

    Args:
        calls_library: Only accept a frame that called into a library. A trainer calls callbacks,
            which may be classes of the user's own: those are not wanted.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not calls_library and is_users_own(file):
            return line_of(file, frame.f_lineno)
        calls_library = calls_library and not _is_a_library(file)
        frame = frame.f_back
    return None


def line_of(file: str, line: int) -> str:
    """Format a line by the file's name alone: the folders are private.

    >>> line_of("/home/ada/secret/train.py", 12)
    'train.py:12'
    """
    return f"{label_text(os.path.basename(file), MAX_CLASS_NAME)}:{line}"  # noqa: PTH119


def is_users_own(file: str) -> bool:
    """Whether a file belongs to the user: not to a library or to gpumon."""
    return not _is_ours(file) and not _is_a_library(file)


def is_in_our_code(thread: int) -> bool:
    """Whether that thread is running inside the hooks, and so may be about to write."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_HOOKS) and not file.startswith(_EXAMPLES):
            return True
        frame = frame.f_back
    return False


def local_in(frame: FrameType, name: str) -> object | None:
    """Return a local variable, ``None`` where the frame has none of that name.

    Up to Python 3.12 reading ``f_locals`` stores all variables in the frame, which would keep alive
    what the user's function deletes later. So the name is looked up in the code first.
    """
    code = frame.f_code
    if name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars:
        found: object | None = frame.f_locals.get(name)
        return found
    return None


def caller_named(name: str, fits: Callable[[Any], bool]) -> Any | None:  # noqa: ANN401
    """Return the local variable ``name`` of the nearest caller where ``fits`` accepts it.

    Trainers do not pass their callback list or their data to a callback.
    """
    frame = sys._getframe(1)
    for _ in range(_FRAMES_UP):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        found = local_in(frame, name)
        if found is not None and fits(found):
            return found
    return None


def is_calling(owner: object | None) -> bool:
    """Whether a method of ``owner`` is among the callers, however far up."""
    frame = sys._getframe(1).f_back
    while frame is not None and owner is not None:
        is_method = hasattr(type(owner), frame.f_code.co_name)
        if is_method and local_in(frame, "self") is owner:
            return True
        frame = frame.f_back
    return False


def _is_ours(file: str) -> bool:
    return file.startswith(_OURS) and not file.startswith(_EXAMPLES)


def _is_a_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or any(folder in file for folder in _PACKAGES)
