"""Specification of a quick start: a command brings along what it needs, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from gpumon.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps([*sys.modules]), file=sys.stderr)
"""
HEAVY = {"rich", "prometheus_client", "pynvml", "psutil", "ssl", "email", "multiprocessing"}


def loaded_by(folder: Path, *words: str) -> set[str]:
    """The modules that a fresh interpreter has after that command."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GPUMON_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


class TestTheList:
    @pytest.mark.parametrize("words", [["--help"], ["--version"], ["nonsense"], []])
    def test_is_shown_without_importing_a_command(self, tmp_path: Path, words: list[str]) -> None:
        loaded = loaded_by(tmp_path, *words)

        assert loaded & HEAVY == set()
        floors = ("gpumon.sources", "gpumon.pipeline", "gpumon.outlets")
        assert [name for name in loaded if name.startswith(floors)] == []


class TestAReport:
    @pytest.mark.parametrize("words", [["--help"], ["--json"]])
    def test_needs_neither_screen_nor_driver_nor_web_nor_pipeline(
        self, tmp_path: Path, words: list[str]
    ) -> None:
        loaded = loaded_by(tmp_path, "report", *words)

        assert loaded & HEAVY == set()
        elsewhere = ("gpumon.pipeline", "gpumon.sources.nvml", "gpumon.sources.logs")
        assert [name for name in loaded if name.startswith(elsewhere)] == []
