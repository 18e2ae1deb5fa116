"""Runs a script of this room in a process of its own, and reads the JSON on its last line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def told_by(name: str) -> Any:
    """What the script prints; it must end well."""
    script = Path(__file__).with_name(name)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
