"""Specification of `gpumon demo`: what its screen shows, and that each report is of one training.

The words of a whole demo are specified in tests/e2e/test_demo.py.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.cli.demo import DemoCommand, DemoScreen, _of_one_stage
from gpumon.core.phase import IdleCause
from gpumon.errors import GpumonError
from tests.builders_report import gpu, report
from tests.builders_time import s

WAIT = IdleCause.INPUT_WAIT
STARTED_AT = "2026-11-21T08:00:00+00:00"


class TestTheReportOfTheSecondTraining:
    def test_begins_where_the_first_one_ended(self) -> None:
        first = replace(report(gpu(13.0, {WAIT: 17.0})), started_at=STARTED_AT)
        both = replace(report(gpu(23.0, {WAIT: 17.0})), started_at=STARTED_AT)

        second = _of_one_stage(first, both)

        assert second.started_at == "2026-11-21T08:00:30+00:00"
        assert second.origin_ns == both.origin_ns + s(30)
        assert second.gpus[0].totals.busy_ns == s(10)

    def test_does_not_say_that_it_adds_up_both(self) -> None:
        first, both = report(gpu(13.0, {WAIT: 17.0})), report(gpu(23.0, {WAIT: 17.0}))
        added_up = "The figures of GPU 0 add up 2 runs since the daemon began."

        assert _of_one_stage(first, replace(both, notes=(added_up,))).notes == ()


class TestAMachineThatLacksSomething:
    def test_such_as_room_is_told_what_to_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")

        with pytest.raises(GpumonError, match="TMPDIR"):
            DemoCommand().run(argparse.Namespace(steps=20, keras=False, keep=False))

    def test_such_as_keras_is_told_how_to_get_it_and_that_the_demo_needs_it_not(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

        with pytest.raises(GpumonError, match="pip install keras jax; without --keras "):
            DemoCommand().run(argparse.Namespace(steps=20, keras=True, keep=False))


@pytest.fixture
def look(tmp_path: Path) -> Callable[..., None]:
    """Shows a screen the state after so many seconds observed, and steps done."""

    def look(screen: DemoScreen, seconds: int, steps: int, lost_ms: int | None = None) -> None:
        gpu = {"observed_ns": s(seconds), "busy_ns": s(seconds), "starved_ns": 0, "suspected_ns": 0}
        if lost_ms is not None:
            gpu |= {"busy_ns": 0, "starved_ns": lost_ms * 10**6, "suspected_ns": lost_ms * 10**6}
        run = {"run": "slow-input", "steps": steps, "phase": "train_step"}
        path = tmp_path / "state.json"
        path.write_text(json.dumps({"gpus": [gpu], "runs": [run]}))
        screen.look(path, "slow-input")

    return look


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the screen, each as it was at last."""
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    return re.split("[\r\n]+", bare.rstrip())


def become_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Of that width, from here on."""
    for name, value in (("COLUMNS", str(columns)), ("LINES", "24"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


class TestATerminal:
    @pytest.mark.parametrize("columns", [80, 140])
    def test_has_a_line_that_is_renewed_and_never_cut_off(
        self,
        columns: int,
        look: Callable[..., None],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        become_a_terminal(monkeypatch, columns)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input, read in the loop", "slow-input", 300)
            look(screen, 1, 251)
            look(screen, 2, 261)

        text = "\n".join(shown(capsys))
        assert "step 261/300  GPU busy 100 %, starved   0 %  now: train_step" in text
        assert "…" not in text

    @pytest.mark.parametrize(
        ("columns", "titles"),
        [
            (124, ("  slow-input ", "  prefetch ")),
            (125, ("  slow input, read in the loop ", "  the same input, read ahead ")),
        ],
    )
    def test_has_whole_titles_bars_and_clocks_in_columns_where_there_is_room(
        self,
        columns: int,
        titles: tuple[str, str],
        look: Callable[..., None],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        become_a_terminal(monkeypatch, columns)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input, read in the loop", "slow-input", 300)
            look(screen, 1, 251)
            screen.begin("the same input, read ahead", "prefetch", 300)

        slow, ahead = shown(capsys)[-2:]
        assert (slow[: len(titles[0])], ahead[: len(titles[1])]) == titles
        assert ("━" in slow, "0:00:0" in slow) == (columns == 125,) * 2
        assert slow.index("step 251/300") == ahead.index("step 0/300")


class TestWhereThereIsNoTerminal:
    def test_there_is_a_line_every_few_seconds_with_the_share_since_the_last_look(
        self,
        look: Callable[..., None],
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        now_s = 1_000.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input", "slow-input", 300)
            for seconds, steps in ((1, 10), (2, 20), (3, 30)):
                look(screen, seconds, steps)
                now_s += 2.5

        assert [line for line in shown(capsys) if "step" in line] == [
            "  slow input: step 10/300  GPU: waiting for samples  now: train_step",
            "  slow input: step 30/300  GPU busy 100 %, starved   0 %  now: train_step",
        ]

    def test_the_last_share_stays_where_nothing_new_was_observed(
        self, look: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input", "slow-input", 300)
            for seconds, lost_ms in [(1, 100), (2, 200), (2, 200)]:
                screen._said_at_s = 0.0
                look(screen, seconds, 1, lost_ms)

        assert "\n".join(shown(capsys)).count("GPU busy   0 %, starved  20 %") == 2
