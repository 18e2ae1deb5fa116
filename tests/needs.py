"""Tools that a test starts: missing, it is skipped with the reason, but never in CI.

Others need a machine on which there is no driver: elsewhere they are skipped.
"""

from __future__ import annotations

import os
import shutil
from ctypes.util import find_library

import pytest


def needed(command: str, package: str | None = None) -> str:
    """The full path of a command; without it the test ends here."""
    path = shutil.which(command)
    if path is None:
        missing(f"{command} is not installed (Debian: {package or command})")
    assert path is not None
    return path


def missing(reason: str) -> None:
    """Skip, or fail where CI promised to have everything."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI nothing may be missing: {reason}")
    pytest.skip(reason)


def without_driver() -> dict[str, str]:
    """The variables of a process that finds no libnvidia-ml.so.1; with one the test ends here."""
    if find_library("nvidia-ml"):
        pytest.skip("there is an NVIDIA driver on this machine")
    return {**os.environ, "LD_LIBRARY_PATH": ""}
