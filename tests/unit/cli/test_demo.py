"""Tests of `gpumon demo`: its screen, and the report of each run. ``tests/e2e`` runs it."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.cli.demo import DemoCommand, DemoScreen, _of_one_stage
from gpumon.core.phase import IdleCause
from gpumon.errors import GpumonError
from tests.builders.report import gpu, report
from tests.builders.time import s

WAIT = IdleCause.INPUT_WAIT
STARTED_AT = "2026-11-21T08:00:00+00:00"
SLOW, AHEAD = "slow input, read in the loop", "the same input, read ahead"


def test_the_report_of_the_second_run_starts_at_the_end_of_the_first_one() -> None:
    first = replace(report(gpu(13.0, {WAIT: 17.0})), started_at=STARTED_AT)
    both = replace(report(gpu(23.0, {WAIT: 17.0})), started_at=STARTED_AT, notes=("on both runs",))

    second = _of_one_stage(first, both)

    assert second.started_at == "2026-11-21T08:00:30+00:00"
    assert second.origin_ns == both.origin_ns + s(30)
    assert second.gpus[0].totals.busy_ns == s(10)
    assert second.notes == ()


class TestAMachine:
    def test_without_space_gets_advice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")

        with pytest.raises(GpumonError, match="TMPDIR"):
            DemoCommand().run(argparse.Namespace(steps=20, keras=False, keep=False))

    def test_without_keras_gets_advice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

        with pytest.raises(GpumonError, match="pip install keras jax`, or leave it out"):
            DemoCommand().run(argparse.Namespace(steps=20, keras=True, keep=False))


class TestTheScreen:
    @pytest.fixture
    def state_file(self, tmp_path: Path) -> Path:
        return tmp_path / "state.json"

    def update(self, screen: DemoScreen, state_file: Path, seconds: int, steps: int) -> None:
        """Show a state after so many busy seconds and steps."""
        gpu = dict.fromkeys(("observed_ns", "busy_ns"), s(seconds))
        gpu |= {"starved_ns": 0, "suspected_ns": 0}
        run = {"run": "slow-input", "steps": steps, "phase": "train_step"}
        state_file.write_text(json.dumps({"gpus": [gpu], "runs": [run]}))
        screen.update(state_file, "slow-input")

    @pytest.mark.parametrize(
        ("columns", "titles", "has_room"),
        [(80, ("slow-input ", "prefetch "), False), (125, (f"{SLOW} ", f"{AHEAD} "), True)],
    )
    def test_has_full_titles_bars_and_clocks_if_it_is_wide_enough(
        self,
        state_file: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        columns: int,
        titles: tuple[str, str],
        has_room: bool,
    ) -> None:
        for name, value in (("COLUMNS", str(columns)), ("LINES", "24"), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin(SLOW, "slow-input", 300)
            self.update(screen, state_file, 1, 251)
            self.update(screen, state_file, 2, 261)
            screen.begin(AHEAD, "prefetch", 300)

        bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
        slow, ahead = re.split("[\r\n]+", bare.rstrip())[-2:]
        assert slow.startswith(f"  {titles[0]}")
        assert ahead.startswith(f"  {titles[1]}")
        assert re.search("step 261/300 .* 100 %, .* 0 % .*: train_step", slow)
        assert ("━" in slow, "0:00:0" in slow) == (has_room,) * 2
        assert "…" not in bare

    def test_without_a_terminal_has_a_line_every_few_seconds(
        self, state_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        now_s = 1_000.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin(SLOW, "slow-input", 300)
            for seconds, steps in ((1, 10), (2, 20), (3, 30)):
                self.update(screen, state_file, seconds, steps)
                now_s += 2.5

        first, second = (line for line in capsys.readouterr().out.splitlines() if "step" in line)
        assert "10/300  GPU: waiting" in first
        assert re.search("step 30/300 .* 100 %, .* 0 %", second)
