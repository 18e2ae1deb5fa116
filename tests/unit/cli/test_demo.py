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


class TestTheReportOfTheSecondRun:
    def test_starts_at_the_end_of_the_first_one_without_notes_on_both(self) -> None:
        first = replace(report(gpu(13.0, {WAIT: 17.0})), started_at=STARTED_AT)
        both = replace(
            report(gpu(23.0, {WAIT: 17.0})), started_at=STARTED_AT, notes=("on both runs",)
        )

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


class Shown:
    """A screen, the daemon's state that it shows, and its lines."""

    def __init__(self, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._state, self._capsys = state, capsys

    def update(self, screen: DemoScreen, seconds: int, steps: int, lost_ms: int = 0) -> None:
        """Show a state after so many observed seconds, all busy or none, and steps."""
        busy_ns, part_ns = 0 if lost_ms else s(seconds), lost_ms * 10**6
        gpu = {"observed_ns": s(seconds), "busy_ns": busy_ns}
        gpu |= {"starved_ns": part_ns, "suspected_ns": part_ns}
        run = {"run": "slow-input", "steps": steps, "phase": "train_step"}
        self._state.write_text(json.dumps({"gpus": [gpu], "runs": [run]}))
        screen.update(self._state, "slow-input")

    def lines(self) -> list[str]:
        """The final lines of the screen."""
        bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._capsys.readouterr().out)
        return re.split("[\r\n]+", bare.rstrip())


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    return Shown(tmp_path / "state.json", capsys)


@pytest.fixture
def screen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DemoScreen:
    """A terminal of as many columns as the parameter; without one, no terminal."""
    columns = getattr(request, "param", None)
    if columns is not None:
        for name, value in (("COLUMNS", str(columns)), ("LINES", "24"), ("TERM", "xterm")):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    return DemoScreen("127.0.0.1:19835")


SLOW, AHEAD = "slow input, read in the loop", "the same input, read ahead"


class TestATerminal:
    @pytest.mark.parametrize("screen", [80, 140], indirect=True)
    def test_has_a_line_that_is_updated_and_never_cut_off(
        self, screen: DemoScreen, shown: Shown
    ) -> None:
        with screen:
            screen.begin(SLOW, "slow-input", 300)
            shown.update(screen, 1, 251)
            shown.update(screen, 2, 261)

        text = "\n".join(shown.lines())
        assert re.search("step 261/300 .* 100 %, .* 0 % .*: train_step", text)
        assert "…" not in text

    @pytest.mark.parametrize(
        ("screen", "titles", "has_room"),
        [(124, ("slow-input ", "prefetch "), False), (125, (f"{SLOW} ", f"{AHEAD} "), True)],
        indirect=["screen"],
    )
    def test_has_full_titles_bars_and_clocks_if_it_is_wide_enough(
        self, screen: DemoScreen, titles: tuple[str, str], has_room: bool, shown: Shown
    ) -> None:
        with screen:
            screen.begin(SLOW, "slow-input", 300)
            shown.update(screen, 1, 251)
            screen.begin(AHEAD, "prefetch", 300)

        slow, ahead = shown.lines()[-2:]
        assert slow.startswith(f"  {titles[0]}")
        assert ahead.startswith(f"  {titles[1]}")
        assert ("━" in slow, "0:00:0" in slow) == (has_room,) * 2
        assert slow.index("step 251/300") == ahead.index("step 0/300")


class TestWithoutATerminal:
    def test_a_line_every_few_seconds_has_the_share_since_the_last_one(
        self, screen: DemoScreen, shown: Shown, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = 1_000.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)

        with screen:
            screen.begin(SLOW, "slow-input", 300)
            for seconds, steps in ((1, 10), (2, 20), (3, 30)):
                shown.update(screen, seconds, steps)
                now_s += 2.5

        first, second = (line for line in shown.lines() if "step" in line)
        assert "10/300  GPU: waiting" in first
        assert re.search("step 30/300 .* 100 %, .* 0 %", second)
