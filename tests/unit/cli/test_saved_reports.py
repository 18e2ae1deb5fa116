"""Specification of `gpumon report` of saved files: of one, and of two beside each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.cli.main import main
from gpumon.core.phase import IdleCause
from gpumon.core.report_codec import encode_report
from tests.builders_report import gpu, report, run, saved

WAIT = IdleCause.INPUT_WAIT
SLOW = report(gpu(30, {WAIT: 30}), runs=(run(steps=500, wall_s=60),))
FAST = report(gpu(30, {WAIT: 1}), runs=(run(steps=500, wall_s=32),))


class TestOneSavedReport:
    def test_is_shown_as_it_was(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        one = saved(tmp_path, "a.json", SLOW)

        assert main(["report", one]) == 0
        text = capsys.readouterr().out
        assert main(["report", one, "--json"]) == 0

        assert text.startswith("Verdict: Starved (high loss): GPU 0")
        assert json.loads(capsys.readouterr().out) == encode_report(SLOW)

    @pytest.mark.parametrize(("limit", "code"), [("49", 1), ("51", 0)])
    def test_is_held_against_the_limits(self, tmp_path: Path, limit: str, code: int) -> None:
        one = saved(tmp_path, "a.json", SLOW)

        assert main(["report", one, "--fail-if-lost-above", limit]) == code
        assert main(["report", one, "--fail-if-starved-above", limit]) == code

    @pytest.mark.parametrize("words", [["--since", "1h"], ["--run", "train"]])
    def test_is_whole_and_has_no_parts_to_ask_for(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
    ) -> None:
        one = saved(tmp_path, "a.json", SLOW)

        assert main(["report", one, *words]) == 2

        assert capsys.readouterr().err == (
            f"gpumon: {one} is a saved report: {words[0]} is of the running daemon, "
            "or of a recording\n"
        )


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

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [('{"schema": "gpumon.report/2"}', "cannot be read: schema 'gpumon.report/2'"),
         ('{"schema": "gpumon.comparison/1"}', "cannot be read: schema 'gpumon.comparison/1'"),
         ("[]", "cannot be read: it holds a list of reports"),
         ("7", "cannot be read: not a report"),
         ("{", "cannot be read: it holds no JSON"),
         ("Verdict: Healthy", "it holds no JSON"), ("", "it holds no JSON"),
         ("index, utilization.gpu [%]\n0, 97 %\n", "it holds no JSON"),
         ("[" * 100_000, "it holds no JSON")],
    )  # fmt: skip
    @pytest.mark.parametrize("is_compared", [True, False], ids=["compared", "alone"])
    def test_are_refused_by_name_with_what_would_do_where_one_is_no_report(
        self,
        tmp_path: Path,
        text: str,
        sentence: str,
        is_compared: bool,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        other = tmp_path / "other.json"
        other.write_text(text)
        words = ["--compare", saved(tmp_path, "a.json", SLOW)] if is_compared else []

        assert main(["report", *words, str(other)]) == 1

        error = capsys.readouterr().err
        assert error.startswith(f"gpumon: {other}: ")
        assert sentence in error
        assert "a recording of `gpumon record`, or a report saved with `gpumon report --json`" in (
            error
        )
        assert len(error.splitlines()) == 1

    def test_are_refused_where_one_is_not_there(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gone = str(tmp_path / "gone.json")

        assert main(["report", "--compare", gone, gone]) == 1
        assert (
            capsys.readouterr().err
            == f"gpumon: {gone}: cannot be read: No such file or directory\n"
        )

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
