"""A fake CUDA driver with the capture mode of a thread."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

MODES = ["global", "thread-local", "relaxed"]


class CudaDriver:
    """``noted``: the modes of the thread, in order."""

    def __init__(self) -> None:
        self.noted: list[str] = []
        self._mode = 0

    def cuThreadExchangeStreamCaptureMode(self, wanted: Any) -> int:  # noqa: N802 (CUDA's)
        mode = wanted._obj
        mode.value, self._mode = self._mode, mode.value
        self.noted.append(MODES[self._mode])
        return 0


def show_driver(monkeypatch: pytest.MonkeyPatch) -> CudaDriver:
    """Let ``ctypes`` open this driver."""
    driver = CudaDriver()
    monkeypatch.setattr(ctypes, "CDLL", {"libcuda.so.1": driver}.__getitem__)
    return driver
