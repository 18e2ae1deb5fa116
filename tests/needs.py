"""Tools that a test starts: missing, it is skipped with the reason, but never in CI.

Others need a machine on which there is no driver: elsewhere they are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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


def with_a_mount(words: str) -> tuple[str, ...]:
    """Words before a command that give it, for itself alone, what ``mount`` makes of these words.

    Where that is not permitted the test ends here.
    """
    unshare = (
        needed("unshare", "util-linux"),
        "--mount",
        "sh",
        "-c",
        f'mount {words} && exec "$@"',
    )
    done = subprocess.run([*unshare, "sh", "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"not permitted here: mount {words} ({done.stderr.strip()})")
    return (*unshare, "sh")


def without_driver() -> dict[str, str]:
    """The variables of a process that finds no libnvidia-ml.so.1; with one the test ends here."""
    if find_library("nvidia-ml"):
        pytest.skip("there is an NVIDIA driver on this machine")
    return {**os.environ, "LD_LIBRARY_PATH": ""}


in_make_truth = pytest.mark.skipif(
    not os.environ.get("GPUMON_WHOLE_TABLE"), reason="takes long: make truth runs it"
)
"""Marks what CI leaves out."""
