"""Runs a script of this room in a process of its own, and reads the JSON on its last line."""

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
    """What the script prints, with a ring of its own; it must end well."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", f"tests.keras.{name}"],
            cwd=ROOT,
            env={**os.environ, "GPUMON_RUNTIME_DIR": folder, **environ},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def told_on_two_devices(name: str) -> Any:
    """The same of one that trains on two devices of TensorFlow, settled once for each process."""
    return told_by(name, KERAS_BACKEND="tensorflow")
