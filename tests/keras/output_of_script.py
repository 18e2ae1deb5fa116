"""Runs a module of the tests in a process of its own, and reads the JSON on its last line."""

from __future__ import annotations

import json
import tempfile
from typing import Any

from tests.programs import ran_python


def json_printed_by(name: str, **environ: str) -> Any:
    """What it prints, with a ring of its own; it must end well."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {"GPUMON_RUNTIME_DIR": folder, **environ}
        done = ran_python("-m", name, environ=environ, timeout_s=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
