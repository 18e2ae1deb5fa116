"""Programs that a test runs to their end: what they reported, and how they ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def ran(
    *words: str | Path,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    cwd: Path = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run a program that has nothing to read.

    Args:
        words: The program and its arguments.
        environ: Its variables beside those of this process.
        timeout_s: How long it may take.
        cwd: Where it runs.
    """
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def ran_python(
    *words: str | Path, environ: Mapping[str, str] | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter, such as with ``-c`` and a program."""
    return ran(sys.executable, *words, environ=environ, timeout_s=timeout_s)


def gpumon(
    *words: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as its user does."""
    return ran_python("-m", "gpumon", *words, environ=environ)
