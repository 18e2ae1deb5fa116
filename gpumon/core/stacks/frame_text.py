"""Frames and places in words, without the folders of the user's own files."""

from __future__ import annotations

from typing import Final

from gpumon.core.stacks.evidence import PlaceCount, UserFunction
from gpumon.core.stacks.frames import library_path
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.wording import label_text

MAX_PATH: Final = 1_024


def shown_path(path: str) -> str:
    """A library's path within its environment; else the file's name.

    >>> shown_path("/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py")
    'torch/utils/data/dataloader.py'
    >>> shown_path("/home/ann/job/train.py")
    'train.py'
    """
    is_relative = not path.startswith("/")  # a library's, from a document
    return label_text(library_path(path) or (path if is_relative else path.rpartition("/")[2]))


def whole_path(frame: StackFrame) -> str:
    """The path of a call's file, as the process knows it."""
    return label_text(frame.path, MAX_PATH)


def where_text(frame: StackFrame) -> str:
    """The file and line of a frame.

    >>> where_text(StackFrame("main", "/home/ann/train.py", 41))
    'train.py:41'
    """
    return shown_path(frame.path) + ("" if frame.line is None else f":{frame.line}")


def call_text(frame: StackFrame) -> str:
    """A frame's function, with its file and line.

    >>> call_text(StackFrame("read", "/home/ann/train.py", 8))
    'read (train.py:8)'
    """
    return label_text(frame.function) + (f" ({where_text(frame)})" if frame.path else "")


def function_text(function: UserFunction) -> str:
    """The user's function and the line that calls it.

    >>> frame, call = StackFrame("read", "/a/t.py", 8), StackFrame("main", "/a/t.py", 17)
    >>> function_text(UserFunction(frame, call, 9, 0, True))
    'read (t.py:8), called from t.py:17'
    """
    name = call_text(function.frame)
    if function.called_from is None:
        return name
    return f"{name}, called from {where_text(function.called_from)}"


def place_text(place: PlaceCount) -> str:
    """Where a thread was.

    >>> from gpumon.core.phase import IdleCause
    >>> frame = StackFrame("__next__", "/e/site-packages/torch/utils/data/dataloader.py")
    >>> call = StackFrame("main", "/home/ann/train.py", 41)
    >>> place_text(PlaceCount(IdleCause.INPUT_WAIT, "DataLoader.__next__", frame, call))
    'DataLoader.__next__ (torch/utils/data/dataloader.py), called from train.py:41'
    """
    parts = []
    if place.frame is not None:
        what = label_text(place.what or place.frame.function)
        parts.append(f"{what} ({shown_path(place.frame.path)})")
    if place.caller is not None:
        called = "called from " if parts else ""
        parts.append(f"{called}{where_text(place.caller)}")
    return ", ".join(parts)
