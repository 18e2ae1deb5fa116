"""A driver of CUDA that knows of one thing: how a thread's calls go together with captures."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

MODES = ["global", "thread-local", "relaxed"]


class CudaDriver:
    """Attributes:
    noted: The modes that the one thread that asks was in, one after the other.
    """

    def __init__(self) -> None:
        self.noted: list[str] = []
        self._mode = 0

    def cuThreadExchangeStreamCaptureMode(self, wanted: Any) -> int:  # noqa: N802 (CUDA's)
        mode = wanted._obj
        mode.value, self._mode = self._mode, mode.value
        self.noted.append(MODES[self._mode])
        return 0


def show_driver(monkeypatch: pytest.MonkeyPatch) -> CudaDriver:
    """What is opened as a library is this driver from now on."""
    driver = CudaDriver()
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": driver}.__getitem__)
    return driver
