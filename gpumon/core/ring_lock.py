"""How the lock on a ring's first byte is asked for: the bytes of a ``struct flock``, both ways."""

from __future__ import annotations

import fcntl
import os
import struct
from functools import lru_cache
from typing import Final, NamedTuple

_FLOCK: Final = struct.Struct("hhqqi4x")

LOCK_QUESTION: Final = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
"""For ``F_GETLK``, which takes nothing: who would be in the way of a lock on byte 0?"""


class LockState(NamedTuple):
    """Whether a ring's writer lives, and under which pid this host knows it (0: cannot tell)."""

    held: bool
    pid: int


@lru_cache(maxsize=1_024)
def read_lock_answer(raw: bytes) -> LockState:
    """What the kernel made of ``LOCK_QUESTION``. A living run has the same answer in each tick."""
    kind, _, _, _, pid = _FLOCK.unpack(raw)
    return LockState(kind != fcntl.F_UNLCK, max(pid, 0))
