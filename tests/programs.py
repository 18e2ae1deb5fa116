"""Programs that a test runs to their end."""

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
    """Run a program without input; ``environ``: added to the variables of this process."""
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
    return ran_python("-m", "gpumon", *words, environ=environ)
