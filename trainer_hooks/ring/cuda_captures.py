"""Let threads of the hooks use CUDA while the run captures a graph."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Final

_THREAD_LOCAL: Final = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``: calls of this thread do not end others' captures."""


@contextlib.contextmanager
def captures_left_alone() -> Iterator[None]:
    """Let this thread use CUDA while another one captures a graph.

    By default (``CU_STREAM_CAPTURE_MODE_GLOBAL``), querying an event or allocating memory on any
    thread ends the capture with an error in the user's code. Does nothing without NVIDIA's driver.
    """
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        yield
        return
    mode = ctypes.c_int(_THREAD_LOCAL)
    exchange(ctypes.byref(mode))  # ``mode`` now holds the previous one
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))
