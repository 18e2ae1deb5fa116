"""What a caller's frame holds, asked in a way that leaves no trace in it."""

from __future__ import annotations

from types import FrameType


def local_in(frame: FrameType, name: str) -> object | None:
    """A local variable; ``None`` where there is none of that name, and then nothing is asked.

    Up to Python 3.12 a frame that was asked keeps what all its variables were
    then: a user's function would hold on to a model that it has deleted.
    """
    code = frame.f_code
    if name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars:
        found: object | None = frame.f_locals.get(name)
        return found
    return None
