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


def shown_at(
    columns: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """The lines of both trainings as a terminal of that width has them at last."""
    for name, value in (("COLUMNS", str(columns)), ("LINES", "24"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with DemoScreen("127.0.0.1:19835") as screen:
        screen.begin("slow input, read in the loop", "slow-input", 300)
        screen.look(state_file(folder, observed_ns=10**9, steps=251), "slow-input")
        screen.begin("the same input, read ahead", "prefetch", 300)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    return re.split("[\r\n]+", shown.rstrip())[-2:]


class TestTheColumnsOfTheTwoTrainings:
    @pytest.mark.parametrize(
        ("columns", "titles"),
        [
            (124, ("  slow-input ", "  prefetch ")),
            (125, ("  slow input, read in the loop ", "  the same input, read ahead ")),
        ],
    )
    def test_have_the_whole_title_a_bar_and_the_clock_where_there_is_room(
        self,
        columns: int,
        titles: tuple[str, str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        slow, ahead = shown_at(columns, tmp_path, capsys, monkeypatch)

        assert (slow[: len(titles[0])], ahead[: len(titles[1])]) == titles
        assert ("━" in slow, "0:00:0" in slow) == (columns == 125,) * 2
        assert slow.index("step 251/300") == ahead.index("step 0/300")


class TestWhatIsSaidWhereThereIsNoTerminal:
    def test_is_a_line_every_few_seconds_with_the_share_since_the_last_look(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now_s = 1_000.0
        monkeypatch.setattr("time.monotonic", lambda: now_s)

        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input", "slow-input", 300)
            for seconds, steps in ((1, 10), (2, 20), (3, 30)):
                screen.look(
                    state_file(tmp_path, observed_ns=seconds * 10**9, steps=steps), "slow-input"
                )
                now_s += 2.5

        said = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
        assert said == [
            "  slow input: step 10/300  GPU: waiting for samples  now: train_step",
            "  slow input: step 30/300  GPU busy 100 %, starved   0 %  now: train_step",
        ]

    def test_is_the_last_share_where_nothing_new_was_observed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        looks = [(1, 100), (2, 200), (2, 200)]
        with DemoScreen("127.0.0.1:19835") as screen:
            screen.begin("slow input", "slow-input", 300)
            for seconds, starved in looks:
                path = state_file(tmp_path, observed_ns=seconds * 10**9, steps=1)
                document = json.loads(path.read_text())
                document["gpus"][0].update(
                    busy_ns=0, starved_ns=starved * 10**6, suspected_ns=starved * 10**6
                )
                path.write_text(json.dumps(document))
                screen._said_at_s = 0.0
                screen.look(path, "slow-input")

        said = capsys.readouterr().out
        assert said.count("GPU busy   0 %, starved  20 %") == 2
