"""Specification of `gpumon report`: from the daemon, of saved files, and as a gate for CI."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.cli import report as report_module
from gpumon.cli.main import main
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report
from tests.builders_report import gpu, report, run, saved

WAIT = IdleCause.INPUT_WAIT
SLOW = report(gpu(30, {WAIT: 30}), runs=(run(steps=500, wall_s=60),))
GATES = ["--fail-if-starved-above", "--fail-if-lost-above"]
FAST = report(gpu(30, {WAIT: 1}), runs=(run(steps=500, wall_s=32),))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A daemon that reports SLOW. How one is asked is specified in test_daemon.py."""

    def answer(state: dict[str, object], since_s: float | None, run: str | None) -> Report:
        assert state == {"address": "x:1"}
        if run is not None:
            return replace(SLOW, notes=(f"of {run} alone",))
        return SLOW if since_s is None else replace(SLOW, notes=(f"the last {since_s:g} s",))

    monkeypatch.setattr(report_module, "read_state", lambda *_: {"address": "x:1"})
    monkeypatch.setattr(report_module, "fetch_report", answer)
    return tmp_path


class TestTheDaemonsReport:
    def test_is_shown_as_text(self, daemon: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report"]) == 0

        assert capsys.readouterr().out.startswith("Verdict: Starved (high loss): GPU 0")

    def test_is_shown_as_json(self, daemon: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", "--json"]) == 0

        assert json.loads(capsys.readouterr().out) == encode_report(SLOW)

    @pytest.mark.parametrize(
        ("words", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172_800)]
    )
    def test_may_be_that_of_the_last_while(
        self, daemon: Path, capsys: pytest.CaptureFixture[str], words: str, seconds: int
    ) -> None:
        assert main(["report", "--since", words]) == 0

        assert f"the last {seconds:g} s" in capsys.readouterr().out

    def test_may_be_that_of_one_run(self, daemon: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["report", "--run", "train"]) == 0

        assert "of train alone" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "more", [["--since", "1h"], ["--compare", "a.json", "b.json"]], ids=["since", "compare"]
    )
    def test_of_one_run_is_of_all_of_it(
        self, daemon: Path, capsys: pytest.CaptureFixture[str], more: list[str]
    ) -> None:
        assert main(["report", "--run", "train", *more]) == 2

        assert "--run" in capsys.readouterr().err

    def test_needs_a_daemon(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))

        assert main(["report"]) == 4

        printed = capsys.readouterr()
        assert printed.out == ""
        assert (
            f"looked for state.json in {tmp_path}, which $GPUMON_RUNTIME_DIR names" in printed.err
        )
        assert "start one with `gpumon serve`" in printed.err
        assert len(printed.err.splitlines()) == 1


class TestTheGate:
    @pytest.mark.parametrize(("limit", "code"), [("5", 1), ("49.9%", 1), ("50", 0), ("100", 0)])
    def test_is_shut_above_the_limit(self, daemon: Path, limit: str, code: int) -> None:
        assert main(["report", "--fail-if-starved-above", limit]) == code

    def test_says_which_gpu_and_how_much(
        self, daemon: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["report", "--json", "--fail-if-starved-above", "5"])

        printed = capsys.readouterr()
        assert json.loads(printed.out)["schema"] == "gpumon.report/1"
        assert "more than 5 % of the time in use: GPU 0 (50 %)" in printed.err

    def test_counts_suspicion_too(self, daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        suspected = report(gpu(30, {IdleCause.UNKNOWN: 30}, suspected_s=20, pauses=9))
        monkeypatch.setattr(report_module, "fetch_report", lambda *_: suspected)

        assert main(["report", "--fail-if-starved-above", "30"]) == 1

    @pytest.mark.parametrize("option", GATES)
    @pytest.mark.parametrize("limit", ["-1", "101", "nan", "inf", "-inf", "1e308", "much", "", "%"])
    def test_refuses_a_limit_that_is_no_percentage(
        self, option: str, limit: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["report", f"{option}={limit}"])

        assert raised.value.code == 2
        assert f"error: argument {option}: " in capsys.readouterr().err

    @pytest.mark.parametrize(("limit", "code"), [("40", 1), ("44.9%", 1), ("45 %", 0), ("46", 0)])
    def test_is_shut_above_a_limit_of_all_that_is_lost(
        self, monkeypatch: pytest.MonkeyPatch, daemon: Path, limit: str, code: int
    ) -> None:
        uneven = report(gpu(55, {IdleCause.IMBALANCE: 45}))
        monkeypatch.setattr(report_module, "fetch_report", lambda *_: uneven)

        assert main(["report", "--fail-if-lost-above", limit]) == code
        assert main(["report", "--fail-if-starved-above", "5"]) == 0

    def test_is_shut_by_either_limit(
        self, daemon: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        saving = report(gpu(72, {IdleCause.CHECKPOINT: 28}), gpu(98, {WAIT: 2}, index=1))
        monkeypatch.setattr(report_module, "fetch_report", lambda *_: saving)

        assert main(["report", "--fail-if-starved-above", "5", "--fail-if-lost-above", "20"]) == 1

        assert capsys.readouterr().err == (
            "gpumon: more than 20 % of the time in use is lost: "
            "GPU 0 (28 %, mainly during checkpoints)\n"
        )


class TestAGateWithNothingToJudge:
    @pytest.mark.parametrize("option", GATES)
    def test_ends_with_a_code_of_its_own_and_prints_the_report_all_the_same(
        self,
        daemon: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        option: str,
    ) -> None:
        unused = report(gpu(0, {IdleCause.NOT_IN_USE: 600}), gpu(1, {WAIT: 2}, index=1))
        monkeypatch.setattr(report_module, "fetch_report", lambda *_: unused)

        assert main(["report", "--json", option, "5"]) == 5

        printed = capsys.readouterr()
        assert json.loads(printed.out) == encode_report(unused)
        assert printed.err == (
            "gpumon: nothing to judge: GPU 0 was not in use, "
            "GPU 1 was in use for 3.0 s, less than 10 s\n"
        )

    def test_is_open_where_no_limit_was_given(
        self, daemon: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(report_module, "fetch_report", lambda *_: report())

        assert main(["report"]) == 0

    @pytest.mark.parametrize(("busy_s", "code"), [(98, 0), (50, 1)])
    def test_is_none_where_one_gpu_of_several_could_be_judged(
        self,
        daemon: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        busy_s: int,
        code: int,
    ) -> None:
        one = report(
            gpu(0, {IdleCause.NOT_IN_USE: 100}), gpu(busy_s, {WAIT: 2 + 98 - busy_s}, index=1)
        )
        monkeypatch.setattr(report_module, "fetch_report", lambda *_: one)

        assert main(["report", "--fail-if-starved-above", "5"]) == code

        assert "gpumon: note: not judged: GPU 0 was not in use\n" in capsys.readouterr().err

    def test_is_said_after_the_report_in_one_log_of_both_streams(self, tmp_path: Path) -> None:
        unused = saved(tmp_path, "unused.json", report(gpu(0, {IdleCause.NOT_IN_USE: 600})))

        ended = subprocess.run(
            [sys.executable, "-m", "gpumon", "report", "--compare", unused, unused,
             "--fail-if-lost-above", "20"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

        assert ended.returncode == 5
        assert ended.stdout.splitlines()[-1].startswith("gpumon: nothing to judge: GPU 0")


class TestTwoSavedReports:
    def test_are_shown_beside_each_other(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = [saved(tmp_path, "a.json", SLOW), saved(tmp_path, "b.json", FAST)]

        assert main(["report", "--compare", *files]) == 0

        assert "29.0 s won back" in capsys.readouterr().out

    def test_are_compared_for_machines_too(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = [saved(tmp_path, "a.json", SLOW), saved(tmp_path, "b.json", FAST)]

        assert main(["report", "--json", "--compare", *files]) == 0

        document = json.loads(capsys.readouterr().out)
        assert document["schema"] == "gpumon.comparison/1"
        assert document["speedup"] == pytest.approx(60 / 32)
        assert document["before"]["gpus"][0]["verdict"] == "starved"

    def test_hold_the_second_against_the_limit(self, tmp_path: Path) -> None:
        slow, fast = saved(tmp_path, "a.json", SLOW), saved(tmp_path, "b.json", FAST)

        assert main(["report", "--compare", slow, fast, "--fail-if-starved-above", "5"]) == 0
        assert main(["report", "--compare", fast, slow, "--fail-if-starved-above", "5"]) == 1

    def test_say_for_machines_in_what_they_are_unlike_and_how_fast_each_run_was(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        other = replace(
            report(gpu(60), gpu(60, index=1)), runs=(*FAST.runs, replace(run(), run="b"))
        )
        files = [saved(tmp_path, "a.json", SLOW), saved(tmp_path, "b.json", other)]

        assert main(["report", "--json", "--compare", *files]) == 0

        document = json.loads(capsys.readouterr().out)
        assert document["unlike"][0].startswith("These are different simulations: 1 ")
        assert document["speedup"] is None
        assert [one["run"] for one in document["runs"]] == ["train", "b"]
        assert document["runs"][0]["speedup"] == pytest.approx(60 / 32)
        assert document["runs"][0]["before"]["wall_seconds_per_step"] == pytest.approx(0.12)
        assert document["runs"][1]["before"] is None

    def test_that_are_alike_have_nothing_unlike(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = [saved(tmp_path, "a.json", SLOW), saved(tmp_path, "b.json", FAST)]

        main(["report", "--json", "--compare", *files])

        printed = capsys.readouterr()
        assert json.loads(printed.out)["unlike"] == []
        assert printed.err == ""

    @pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
    def test_that_are_one_and_the_same_are_said_to_be(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
    ) -> None:
        one = saved(tmp_path, "a.json", SLOW)

        assert main(["report", *words, "--compare", one, one]) == 0

        assert capsys.readouterr().err == (
            "gpumon: note: both are the same report: nothing can have changed\n"
        )

    def test_may_have_been_saved_by_an_older_gpumon(self, tmp_path: Path) -> None:
        document = encode_report(SLOW)
        added = ["machine", "sampling", "findings", "notes", "replayed", "simulated"]
        added_to_a_gpu = [
            "lost_ratio",
            "main_cause",
            "pauses",
            "fill",
            "troubles",
            "label",
            "error",
        ]
        added_to_a_run = ["samples", "step_seconds", "loader", "shares", "alive", "ended_before"]
        for part, names in (
            (document, added), (document["gpus"][0], added_to_a_gpu),
            (document["runs"][0], added_to_a_run),
        ):  # fmt: skip
            for name in names:
                del part[name]
        older = tmp_path / "older.json"
        older.write_text(json.dumps(document))
        gates = ["--fail-if-starved-above", "49", "--fail-if-lost-above", "49"]

        assert main(["report", "--compare", str(older), str(older), *gates]) == 1
        assert (
            main(["report", "--json", "--compare", saved(tmp_path, "b.json", FAST), str(older)])
            == 0
        )

    def test_may_have_no_gpu(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        files = [saved(tmp_path, "a.json", SLOW), saved(tmp_path, "none.json", report())]

        assert main(["report", "--compare", *files, "--fail-if-lost-above", "20"]) == 5

        printed = capsys.readouterr()
        assert "against no GPU" in printed.out
        assert printed.err == "gpumon: nothing to judge: no GPU was observed\n"

    def test_by_somebody_else_put_nothing_on_the_terminal_but_text(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        document = encode_report(replace(SLOW, runs=(run(), replace(run(), run="b"))))
        foul = "\x1b]0;owned\x07\x1b[2J\u202e\n"
        for part, names in (
            (document, ("source",)), (document["gpus"][0], ("uuid", "name", "error")),
            (document["runs"][0], ("run", "job", "framework")),
            (document["runs"][1], ("run", "job", "framework")),
        ):  # fmt: skip
            for name in names:
                part[name] = f"{foul}{name}{part.get('pid', '')}"
        document["runs"][1]["run"] += "2"
        odd, plain = tmp_path / "odd.json", saved(tmp_path, "a.json", FAST)
        odd.write_text(json.dumps(document))
        gates = ["--fail-if-starved-above", "5", "--fail-if-lost-above", "20"]

        for files in ([str(odd), plain], [plain, str(odd)], [str(odd), str(odd)]):
            assert main(["report", "--compare", *files, *gates]) in (0, 1)
            printed = capsys.readouterr()
            assert all(line.isprintable() for line in printed.out.splitlines())
            assert all(line.isprintable() for line in printed.err.splitlines())

    @pytest.mark.parametrize(
        ("field", "value"),
        [("steps", -5), ("steps", 1e308), ("wall_seconds", -1.0), ("wall_seconds", 1e290),
         ("samples", -3), ("samples", 1e300), ("step_seconds", 0.0), ("steps", "many"),
         ("wall_seconds", float("nan")), ("samples", float("inf"))],
    )  # fmt: skip
    @pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
    def test_whose_runs_claim_nonsense_end_with_no_traceback(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        words: list[str],
        field: str,
        value: object,
    ) -> None:
        document = encode_report(SLOW)
        document["runs"][0][field] = value
        odd, plain = tmp_path / "odd.json", saved(tmp_path, "a.json", FAST)
        odd.write_text(json.dumps(document))

        for files in ([str(odd), plain], [plain, str(odd)], [str(odd), str(odd)]):
            assert main(["report", *words, "--compare", *files]) in (0, 1)
