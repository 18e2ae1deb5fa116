"""What a test needs; without it the test is skipped with the reason, but fails in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
from ctypes.util import find_library

import pytest


def needed(command: str, package: str | None = None) -> str:
    """The full path of a command."""
    path = shutil.which(command)
    if path is None:
        missing(f"{command} is not installed (Debian: {package or command})")
    assert path is not None
    return path


def missing(reason: str) -> None:
    """Skip, or fail in CI."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI nothing may be missing: {reason}")
    pytest.skip(reason)


def with_a_mount(arguments: str) -> tuple[str, ...]:
    """A prefix for a command that gives it its own mount; skips where that is not permitted."""
    unshare = (
        needed("unshare", "util-linux"),
        "--mount",
        "sh",
        "-c",
        f'mount {arguments} && exec "$@"',
    )
    done = subprocess.run([*unshare, "sh", "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"not permitted here: mount {arguments} ({done.stderr.strip()})")
    return (*unshare, "sh")


def without_driver() -> dict[str, str]:
    """Variables of a process without libnvidia-ml.so.1; skips where there is a driver."""
    if find_library("nvidia-ml"):
        pytest.skip("there is an NVIDIA driver on this machine")
    return {**os.environ, "LD_LIBRARY_PATH": ""}


in_make_truth = pytest.mark.skipif(
    not os.environ.get("GPUMON_WHOLE_TABLE"), reason="takes long: make truth runs it"
)
"""Marks what CI leaves out."""
in_ci_on_jax = pytest.mark.skipif(
    os.environ.get("KERAS_BACKEND") != "jax" and not os.environ.get("GPUMON_WHOLE_TABLE"),
    reason="takes long: CI tries it on JAX, make truth on every backend",
)
"""Marks tests of Keras that every backend passes in the same way."""
