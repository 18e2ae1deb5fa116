"""Specification of what `gpumon demo` shows on a terminal while it runs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from gpumon.cli.demo import DemoScreen

NOW = "step 261/300  GPU busy 100 %, starved   0 %  now: train_step"


def state_file(folder: Path, *, observed_ns: int, steps: int) -> Path:
    counters = {"observed_ns": observed_ns, "busy_ns": observed_ns}
    gpu = {**counters, "starved_ns": 0, "suspected_ns": 0}
    run = {"run": "slow-input", "steps": steps, "phase": "train_step"}
    path = folder / "state.json"
    path.write_text(json.dumps({"gpus": [gpu], "runs": [run]}))
    return path


class TestTheLineThatIsRenewed:
    @pytest.mark.parametrize("columns", ["80", "140"])
    def test_is_never_cut_off(
        self,
        columns: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        for name, value in (("COLUMNS", columns), ("LINES", "24"), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input, read in the loop", "slow-input", 300)
            screen.look(state_file(tmp_path, observed_ns=10**9, steps=251), "slow-input")
            screen.look(state_file(tmp_path, observed_ns=2 * 10**9, steps=261), "slow-input")

        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
        assert NOW in shown
        assert "…" not in shown
