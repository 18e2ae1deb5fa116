"""The log in ``examples/`` has the report and the picture of the README."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from gpumon.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "analyze.png"
LOG = "examples/slow_run.csv"
PROMPT = f"$ gpumon analyze {LOG} --plot slow_run.png\n"
UPDATE = bool(os.environ.get("GPUMON_UPDATE_GOLDEN"))


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.chdir(ROOT)
    assert main(["analyze", LOG, "--plot", str(tmp_path / "slow_run.png")]) == 0
    return capsys.readouterr().out


class TestTheExampleOfTheReadme:
    def test_is_what_the_command_prints_as_golden_text(self, printed: str) -> None:
        text = README.read_text(encoding="utf-8")
        begin = text.index(PROMPT) + len(PROMPT)
        end = text.index("\n[...]", begin)
        verdict = printed.split("\nWhy:")[0]
        if UPDATE:
            README.write_text(text[:begin] + verdict + text[end:], encoding="utf-8")
            return

        assert text[begin:end] == verdict, "run: make golden"

    def test_is_what_its_golden_picture_shows(self, printed: str, tmp_path: Path) -> None:
        drawn = tmp_path / "slow_run.png"
        if UPDATE:
            PICTURE.write_bytes(drawn.read_bytes())

        new, kept = imread(drawn), imread(PICTURE)
        assert new.shape == kept.shape, "run: make golden"
        # Another version of matplotlib may draw letters differently.
        assert np.abs(new - kept).mean() < 0.002, "run: make golden"
