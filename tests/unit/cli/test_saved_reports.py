"""Specification of `gpumon report` of a file: a saved report, and what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpumon.cli.main import main
from gpumon.core.documents.report_codec import encode_report
from gpumon.core.phase import IdleCause
from tests.builders_report import gpu, report, run, saved

WAIT = IdleCause.INPUT_WAIT
SLOW = report(gpu(30, {WAIT: 30}), runs=(run(steps=500, wall_s=60),))


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


class TestAFileThatIsNoReport:
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
    def test_is_refused_by_name_with_what_would_do(
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

    def test_is_refused_where_it_is_not_there(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        gone = str(tmp_path / "gone.json")

        assert main(["report", "--compare", gone, gone]) == 1
        assert (
            capsys.readouterr().err
            == f"gpumon: {gone}: cannot be read: No such file or directory\n"
        )
