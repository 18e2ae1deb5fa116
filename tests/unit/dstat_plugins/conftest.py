"""A runtime folder of its own for each test of the plugin."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("DSTAT_GPU", raising=False)
    return folder
