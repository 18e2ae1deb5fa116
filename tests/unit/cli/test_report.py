"""Tests of `gpumon report`: from the daemon, from saved files, and as a gate for CI.

Its refusals and messages are in ``tests/golden``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.cli import report as report_module
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import IdleCause
from gpumon.core.report.lanes import Lanes, ReportWithLanes
from gpumon.core.report.report import Report
from gpumon.outlets.text.report_text import render_report
from tests.builders.report import gpu, report, run, saved
from tests.builders.time import s
from tests.command_line import Shell
from tests.unit.outlets.report_lines import PLAIN

WAIT, NOT_IN_USE = IdleCause.INPUT_WAIT, IdleCause.NOT_IN_USE
SLOW = report(gpu(30, {WAIT: 30}), runs=(run(wall_s=60),))
FAST = report(gpu(30, {WAIT: 1}), runs=(run(wall_s=32),))
SUSPECTED = report(gpu(30, {IdleCause.UNKNOWN: 30}, suspected_s=20, pauses=9))
UNEVEN = report(gpu(55, {IdleCause.IMBALANCE: 45}))
UNUSED = report(gpu(0, {NOT_IN_USE: 600}), gpu(1, {WAIT: 2}, index=1))
ONE_WORKS, ONE_WAITS = (
    report(gpu(0, {NOT_IN_USE: 100}), gpu(busy_s, {WAIT: 100 - busy_s}, index=1))
    for busy_s in (98, 50)
)
STARVED, LOST = "--fail-if-starved-above", "--fail-if-lost-above"


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return saved(tmp_path, "slow.json", SLOW)


@pytest.fixture
def fast(tmp_path: Path) -> str:
    return saved(tmp_path, "fast.json", FAST)


def changed(tmp_path: Path, document: dict[str, Any]) -> Path:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float | None, str | None]]:
    """The requests to a daemon that reports SLOW."""
    received = []

    def answer(_: object, since_s: float | None, run: str | None) -> Report:
        received.append((since_s, run))
        return SLOW

    def answer_with_lanes(*scope: Any) -> ReportWithLanes:
        lane = Lane(s(7), s(8), s(1), (s(1),), (s(1),), (s(1),))
        return ReportWithLanes(answer(*scope), Lanes((lane,)))

    monkeypatch.setattr(report_module, "read_state", lambda *_: {"address": "x:1"})
    monkeypatch.setattr(report_module, "fetch_report", answer)
    monkeypatch.setattr(report_module, "fetch_report_with_lanes", answer_with_lanes)
    return received


class TestTheReport:
    @pytest.mark.usefixtures("requests")
    @pytest.mark.parametrize("is_saved", [True, False], ids=["saved", "of the daemon"])
    def test_is_printed_as_text_and_json(self, slow: str, gpumon: Shell, is_saved: bool) -> None:
        words: list[str | Path] = ["report", slow] if is_saved else ["report"]

        assert gpumon(*words) == (0, render_report(SLOW, PLAIN), "")
        assert gpumon(*words, "--json").document == encode_report(SLOW)

    @pytest.mark.parametrize(
        ("words", "since_s", "run"),
        [
            ("--since 90", 90, None),
            ("--since 15m", 900, None),
            ("--since 2d", 172_800, None),
            ("--run train", None, "train"),
        ],
    )
    def test_may_cover_a_recent_time_or_one_run(
        self, requests: list[object], gpumon: Shell, words: str, since_s: float, run: str
    ) -> None:
        assert gpumon("report", *words.split()).code == 0
        assert requests == [(since_s, run)]


class TestThePage:
    def test_has_lanes(self, gpumon: Shell, tmp_path: Path, requests: list[object]) -> None:
        page = tmp_path / "page.html"

        assert gpumon("report", "--run", "train", "--html", page).out == render_report(SLOW, PLAIN)
        assert requests == [(None, "train")]
        assert '<img src="data:' in page.read_text()

    def test_of_a_saved_report_has_none(self, slow: str, gpumon: Shell, tmp_path: Path) -> None:
        page = tmp_path / "page.html"

        assert gpumon("report", slow, "--html", page).code == 0
        assert "<table>" in page.read_text()
        assert "<img" not in page.read_text()

    def test_needs_matplotlib_and_the_report_does_not(
        self, slow: str, gpumon: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in sys.modules if name.startswith("gpumon.outlets.plot")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        words: list[str | Path] = ["report", slow, "--html", tmp_path / "page.html"]

        printed = gpumon(*words)

        assert (printed.code, printed.out) == (1, render_report(SLOW, PLAIN))
        assert f"{sys.executable} -m pip install 'matplotlib>=3.8'" in printed.err
        assert gpumon(*words, STARVED, "99").code == 1


class TestTheGate:
    @pytest.mark.parametrize(
        ("one", "limits", "code"),
        [
            (SLOW, f"{STARVED} 49.9%", 1),
            (SLOW, f"{STARVED} 50", 0),
            (SUSPECTED, f"{STARVED} 30", 1),
            (UNEVEN, f"{STARVED} 5", 0),
            (UNEVEN, f"{LOST} 44.9%", 1),
            (UNEVEN, f"{LOST} 45", 0),
            (UNEVEN, f"{LOST} 46 {STARVED} 5", 0),
            (UNEVEN, f"{LOST} 40 {STARVED} 5", 1),
            (UNUSED, f"{STARVED} 5", 5),
            (UNUSED, "", 0),
            (ONE_WORKS, f"{STARVED} 5", 0),
            (ONE_WAITS, f"{STARVED} 5", 1),
            (report(), f"{LOST} 5", 5),
        ],
    )
    def test_fails_above_a_limit_and_prints_the_report_anyway(
        self, tmp_path: Path, gpumon: Shell, one: Report, limits: str, code: int
    ) -> None:
        ended = gpumon("report", "--json", saved(tmp_path, "a.json", one), *limits.split())

        assert (ended.code, ended.document) == (code, encode_report(one))

    def test_writes_messages_after_the_report(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
        unused = saved(tmp_path, "unused.json", UNUSED)

        ended = subprocess.run(
            [sys.executable, "-m", "gpumon", "report", "--compare", unused, unused, LOST, "20"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

        assert ended.returncode == 5
        assert ended.stdout.splitlines()[-1].startswith("gpumon: ")


class TestTwoSavedReports:
    def test_are_compared_as_text_and_json(self, slow: str, fast: str, gpumon: Shell) -> None:
        ended = gpumon("report", "--compare", slow, fast)
        document = gpumon("report", "--json", "--compare", slow, fast).document

        assert (ended.code, ended.err) == (0, "")
        assert "29 s" in ended.out
        assert document["schema"] == "gpumon.comparison/1"
        assert document["speedup"] == pytest.approx(60 / 32)
        assert document["before"]["gpus"][0]["verdict"] == "starved"
        assert document["unlike"] == []

    def test_have_a_limit_for_the_second(self, slow: str, fast: str, gpumon: Shell) -> None:
        assert gpumon("report", "--compare", slow, fast, STARVED, "5").code == 0
        assert gpumon("report", "--compare", fast, slow, STARVED, "5").code == 1

    def test_have_differences_and_speedups_by_run_as_json(
        self, slow: str, tmp_path: Path, gpumon: Shell
    ) -> None:
        runs = (*FAST.runs, replace(run(), run="b"))
        other = saved(tmp_path, "b.json", report(gpu(60), gpu(60, index=1), runs=runs))

        document = gpumon("report", "--json", "--compare", slow, other).document

        assert len(document["unlike"]) == 1
        assert document["speedup"] is None
        assert [one["run"] for one in document["runs"]] == ["train", "b"]
        assert document["runs"][0]["speedup"] == pytest.approx(60 / 32)
        assert document["runs"][0]["before"]["wall_seconds_per_step"] == pytest.approx(0.12)
        assert document["runs"][1]["before"] is None

    def test_may_be_of_an_older_version(self, tmp_path: Path, fast: str, gpumon: Shell) -> None:
        document = encode_report(SLOW)
        added_later: list[tuple[dict[str, Any], str]] = [
            (document, "machine sampling findings notes replayed simulated"),
            (document["gpus"][0], "lost_ratio main_cause pauses fill troubles label error"),
            (document["runs"][0], "samples step_seconds loader shares alive ended_before"),
        ]
        for part, names in added_later:
            for name in names.split():
                del part[name]
        older = changed(tmp_path, document)

        assert gpumon("report", "--compare", older, older, STARVED, "49", LOST, "49").code == 1
        assert gpumon("report", "--json", "--compare", fast, older).code == 0

    def test_print_no_control_characters(self, tmp_path: Path, fast: str, gpumon: Shell) -> None:
        document = encode_report(replace(SLOW, runs=(run(), replace(run(), run="b"))))
        hostile = "\x1b]0;owned\x07\x1b[2J\u202e\n"
        outside: list[tuple[dict[str, Any], str]] = [
            (document, "source"),
            (document["gpus"][0], "uuid name error"),
            *((one, "run job framework") for one in document["runs"]),
        ]
        for number, (part, names) in enumerate(outside):
            for name in names.split():
                part[name] = f"{hostile}{name}{number}"
        path = changed(tmp_path, document)

        for files in ([path, fast], [fast, path], [path, path]):
            ended = gpumon("report", "--compare", *files, STARVED, "5", LOST, "20")
            assert ended.code in (0, 1)
            assert all(line.isprintable() for line in (ended.out + ended.err).splitlines())

    @pytest.mark.parametrize(
        ("field", "value"),
        [("steps", -5), ("steps", 1e308), ("wall_seconds", -1.0), ("wall_seconds", 1e290),
         ("samples", 1e300), ("step_seconds", 0.0), ("steps", "many"),
         ("wall_seconds", float("nan")), ("samples", float("inf"))],
    )  # fmt: skip
    def test_may_have_impossible_runs(
        self, tmp_path: Path, fast: str, gpumon: Shell, field: str, value: object
    ) -> None:
        document = encode_report(SLOW)
        document["runs"][0][field] = value
        path = changed(tmp_path, document)

        for files in ([path, fast], [fast, path], [path, path]):
            assert gpumon("report", "--compare", *files).code in (0, 1)
            assert gpumon("report", "--json", "--compare", *files).code in (0, 1)
