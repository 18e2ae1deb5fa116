"""Tests of start-up: a command imports only what it needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.programs import ran_python

PROGRAM = """
import json, sys
from gpumon.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps([*sys.modules]), file=sys.stderr)
"""
HEAVY = {
    "rich", "prometheus_client", "pynvml", "psutil", "ssl", "email", "multiprocessing",
}  # fmt: skip
LAYERS = ("gpumon.sources", "gpumon.pipeline", "gpumon.outlets")
NEITHER_PIPELINE_NOR_LOGS = ("gpumon.pipeline", "gpumon.sources.nvml", "gpumon.sources.logs")


def loaded_by(words: str, folder: Path) -> set[str]:
    done = ran_python("-c", PROGRAM, *words.split(), environ={"GPUMON_RUNTIME_DIR": str(folder)})
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ("--help", LAYERS),
        ("--version", LAYERS),
        ("nonsense", LAYERS),
        ("", LAYERS),
        ("report --help", NEITHER_PIPELINE_NOR_LOGS),
        ("report --json", NEITHER_PIPELINE_NOR_LOGS),
    ],
)
def test_no_heavy_module_is_imported_by(
    words: str, left_out: tuple[str, ...], tmp_path: Path
) -> None:
    loaded = loaded_by(words, tmp_path)

    assert loaded & HEAVY == set()
    assert [name for name in loaded if name.startswith(left_out)] == []


def test_a_daemon_imports_no_log_parser_and_no_heavy_module(tmp_path: Path) -> None:
    loaded = loaded_by("serve --help", tmp_path)

    assert "gpumon.cli.serve" in loaded
    assert "gpumon.sources.logs.json_documents" not in loaded
    assert loaded & HEAVY == set()
