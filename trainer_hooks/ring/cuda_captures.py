"""Threads of the hooks that use CUDA while the training captures a graph."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Final

_THREAD_LOCAL: Final = 1
"""``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``: what a thread asks spoils no capture of another's."""


@contextlib.contextmanager
def captures_left_alone() -> Iterator[None]:
    """Let this thread use CUDA while another one captures a graph.

    By default (``CU_STREAM_CAPTURE_MODE_GLOBAL``) asking whether an event is done, or for memory,
    on any thread, ends the capture with an error in the user's hands. Without a driver of NVIDIA's
    nothing is changed.
    """
    try:
        exchange = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        yield
        return
    mode = ctypes.c_int(_THREAD_LOCAL)
    exchange(ctypes.byref(mode))  # it holds what was so before, from here on
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))
