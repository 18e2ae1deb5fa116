"""Specification of `gpumon analyze`: one report a file, one sentence for each it cannot read."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.cli.main import main
from tests.builders_logs import smi_log
from tests.builders_time import rhythm
from tests.processes import ending

BURSTY = smi_log([round(100 * ratio) for ratio in rhythm(3, 2, 30)])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.csv"
    path.write_text(BURSTY)
    return path


class TestOneLog:
    def test_is_answered_by_three_lines_first(
        self, log: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", str(log)]) == 0

        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("Verdict: Starvation suspected (high loss): GPU 0")

    def test_is_one_object_in_json(self, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["analyze", "--json", str(log)]) == 0

        document = json.loads(capsys.readouterr().out)
        assert document["schema"] == "gpumon.report/1"
        assert document["source"] == str(log)
        assert document["gpus"][0]["verdict"] == "starvation_suspected"
        assert document["gpus"][0]["suspected_seconds"] == pytest.approx(58.0, rel=0.02)

    def test_may_come_from_the_standard_input(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BURSTY.encode())))

        assert main(["analyze", "-"]) == 0

        assert "standard input: 150.0 s observed" in capsys.readouterr().out

    def test_may_be_explained_by_the_user(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "numbers.csv"
        path.write_text("7,50,300\n" * 20)

        code = main(
            ["analyze", "--json", "--column", "utilization.gpu=2", "--period", "0.5", str(path)]
        )

        document = json.loads(capsys.readouterr().out)
        assert code == 0
        assert document["observed_seconds"] == 10.0
        assert document["gpus"][0]["busy_ratio"] == 0.5


class TestSeveralLogs:
    def test_are_an_array_in_json(self, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["analyze", "--json", str(log), str(log)]) == 0

        assert [d["source"] for d in json.loads(capsys.readouterr().out)] == [str(log)] * 2

    def test_go_on_after_one_that_cannot_be_read(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        missing, empty = tmp_path / "missing.csv", tmp_path / "empty.csv"
        empty.touch()

        code = main(["analyze", "--json", str(missing), str(log), str(empty)])

        printed = capsys.readouterr()
        assert code == 1
        assert len(json.loads(printed.out)) == 1
        assert printed.err.splitlines() == [
            f"gpumon: {missing}: no such file",
            f"gpumon: {empty}: is empty",
        ]

    def test_are_still_an_array_where_none_can_be_read(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", "--json", str(tmp_path / "a"), str(tmp_path / "b")]) == 1

        assert json.loads(capsys.readouterr().out) == []

    def test_are_named_above_their_reports(
        self, log: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["analyze", str(log), str(log)])

        assert capsys.readouterr().out.count(f"== {log}\n") == 2


class TestTheHelp:
    def test_names_the_tools_whose_logs_are_read(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["analyze", "--help"])

        said = capsys.readouterr().out
        tools = ("nvidia-smi", "dmon", "pmon", "dcgmi", "gpustat", "nvitop", "W&B", "Prometheus")
        assert [tool for tool in tools if tool not in said] == []


class TestMisuse:
    @pytest.mark.parametrize(
        "words",
        [[], ["--column", "utilization.gpu", "x"], ["--column", "a=0", "x"], ["--period", "0", "x"],
         ["--period", "nan", "x"], ["--period", "soon", "x"], ["--frobnicate", "x"]],
    )  # fmt: skip
    def test_of_words_is_exit_code_2(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as raised:
            main(["analyze", *words])

        assert raised.value.code == 2
        assert "usage: gpumon" in capsys.readouterr().err

    def test_of_a_column_is_one_sentence(
        self, log: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", "--column", "utilization.gpu=77", str(log)]) == 2

        assert "the log has 5 columns, counted from 1" in capsys.readouterr().err

    def test_of_the_standard_input_twice_is_one_sentence(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["analyze", "-", "-"]) == 2

        assert "only once" in capsys.readouterr().err


class TestAPipe:
    def test_that_closes_early_is_no_error(self, log: Path) -> None:
        analysis = subprocess.Popen(
            [sys.executable, "-m", "gpumon", "analyze", *[str(log)] * 40],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with ending(analysis) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()

            errors = process.stderr.read()
            assert process.wait(timeout=60) == 0
        assert errors == b""

    def test_in_an_ascii_locale_gets_ascii(self, log: Path) -> None:
        environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

        done = subprocess.run(
            [sys.executable, "-m", "gpumon", "analyze", str(log)],
            capture_output=True, env=environ, timeout=60, check=True,
        )  # fmt: skip

        assert done.stdout.isascii()
        assert b"<-" in done.stdout


class TestAStreamThatIsClosed:
    @pytest.mark.parametrize(
        ("command", "code", "said"),
        [("- <&-", 1, "gpumon: standard input: is empty\n"), ('"$1" >&-', 0, ""),
         ('"$1" gone 2>&-', 1, "")],
    )  # fmt: skip
    def test_is_as_an_empty_one(self, command: str, code: int, said: str, log: Path) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", f'"$0" -m gpumon analyze {command}', sys.executable, str(log)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

        assert (done.returncode, done.stderr) == (code, said)


class TestASentenceOnAnError:
    def test_cannot_speak_to_the_terminal_nor_break_in_two(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        hostile = tmp_path / "two\nlines.csv"
        hostile.write_text("time,\033[31mred\033[0m,foo\n1,2,3\n2,3,4\n")

        assert main(["analyze", str(hostile)]) == 1

        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert said.rstrip("\n").isprintable()
        assert "red" in said

    def test_of_misuse_is_as_clean(self, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["analyze", "--column", "utilization.gpu=\033[31mred", str(log)]) == 2

        assert capsys.readouterr().err.rstrip("\n").isprintable()
