"""Runs a module of the tests in a process of its own, and reads the JSON on its last line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def told_by(name: str, **environ: str) -> Any:
    """What it prints, with a ring of its own; it must end well."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", name],
            cwd=ROOT,
            env={**os.environ, "GPUMON_RUNTIME_DIR": folder, **environ},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
