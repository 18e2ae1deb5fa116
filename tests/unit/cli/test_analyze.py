"""Specification of `gpumon analyze`: one report a file, one sentence for each it cannot read.

So it is with pictures. The sentences are in ``tests/golden``.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.outlets.text.report_text import render_report
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.logs import NO_OPTIONS, analyse_file, smi_log
from tests.command_line import Shell
from tests.processes import ending
from tests.programs import ran_python
from tests.unit.outlets.report_lines import PLAIN

BURSTY = smi_log([round(100 * ratio) for ratio in on_and_off(late_waves(30))])


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log in a folder of its own, where the command is typed."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "gpu.csv"
    path.write_text(BURSTY)
    return path


class TestOneLog:
    def test_is_answered_by_its_report(self, log: Path, gpumon: Shell) -> None:
        report = analyse_file(str(log), NO_OPTIONS)

        assert gpumon("analyze", log) == (0, render_report(report, PLAIN), "")

    def test_is_one_object_in_json(self, log: Path, gpumon: Shell) -> None:
        document = gpumon("analyze", "--json", log).document

        assert document["schema"] == "gpumon.report/1"
        assert document["source"] == str(log)
        assert document["gpus"][0]["verdict"] == "starvation_suspected"
        assert document["gpus"][0]["suspected_seconds"] == pytest.approx(90.0, rel=0.02)

    def test_may_come_from_the_standard_input(self, gpumon: Shell) -> None:
        document = gpumon("analyze", "--json", "-", stdin=BURSTY.encode()).document

        assert (document["source"], document["observed_seconds"]) == ("standard input", 251)

    def test_may_be_explained_by_the_user(self, tmp_path: Path, gpumon: Shell) -> None:
        path = tmp_path / "numbers.csv"
        path.write_text("7,50,300\n" * 20)

        document = gpumon(
            "analyze", "--json", "--column", "utilization.gpu=2", "--period", "0.5", path
        ).document

        assert document["observed_seconds"] == 10.0
        assert document["gpus"][0]["busy_ratio"] == 0.5


class TestSeveralLogs:
    def test_are_an_array_in_json(self, log: Path, gpumon: Shell) -> None:
        reports = gpumon("analyze", "--json", log, log).document

        assert [report["source"] for report in reports] == [str(log)] * 2

    def test_go_on_after_one_that_cannot_be_read(
        self, log: Path, tmp_path: Path, gpumon: Shell
    ) -> None:
        missing, empty = tmp_path / "missing.csv", tmp_path / "empty.csv"
        empty.touch()

        ended = gpumon("analyze", "--json", missing, log, empty)

        assert (ended.code, len(ended.document)) == (1, 1)
        first, second = ended.err.splitlines()
        assert first.startswith(f"gpumon: {missing}: ")
        assert second.startswith(f"gpumon: {empty}: ")

    def test_are_still_an_array_where_none_can_be_read(self, tmp_path: Path, gpumon: Shell) -> None:
        ended = gpumon("analyze", "--json", tmp_path / "a", tmp_path / "b")

        assert (ended.code, ended.document) == (1, [])

    def test_are_named_above_their_reports(self, log: Path, gpumon: Shell) -> None:
        assert gpumon("analyze", log, log).out.count(f"== {log}\n") == 2


def test_the_help_names_the_tools_whose_logs_are_read(gpumon: Shell) -> None:
    said = gpumon("analyze", "--help").out

    tools = ("nvidia-smi", "dmon", "dcgmi", "gpustat", "nvitop", "W&B", "Prometheus")
    assert [tool for tool in tools if tool not in said] == []


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
        environ = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

        said = ran_python("-m", "gpumon", "analyze", log, environ=environ).stdout

        assert said.isascii()
        assert "<-" in said


@pytest.mark.parametrize(
    ("command", "code", "lines"), [("- <&-", 1, 1), ('"$1" >&-', 0, 0), ('"$1" gone 2>&-', 1, 0)]
)
def test_a_stream_that_is_closed_is_as_an_empty_one(
    command: str, code: int, lines: int, log: Path
) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m gpumon analyze {command}', sys.executable, str(log)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stderr.count("\n")) == (code, lines)


def test_a_sentence_on_an_error_cannot_speak_to_the_terminal_nor_break_in_two(
    tmp_path: Path, gpumon: Shell
) -> None:
    hostile = tmp_path / "two\nlines.csv"
    hostile.write_text("time,\033[31mred\033[0m,foo\n1,2,3\n2,3,4\n")

    ended = gpumon("analyze", hostile)

    assert ended.code == 1
    assert ended.is_refused_in_a_sentence
    assert "red" in ended.err


def names_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


class TestAPicture:
    @pytest.mark.parametrize(
        ("name", "begin"), [("a.PNG", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
    )
    def test_is_what_its_ending_says(
        self, log: Path, gpumon: Shell, name: str, begin: bytes
    ) -> None:
        assert gpumon("analyze", log, "--plot", name).code == 0
        assert log.with_name(name).read_bytes().startswith(begin)

    @pytest.mark.parametrize("words", [[], ["--json"]], ids=["text", "json"])
    def test_and_a_page_come_beside_the_report(
        self, log: Path, gpumon: Shell, words: list[str]
    ) -> None:
        alone = gpumon("analyze", log, *words)

        assert gpumon("analyze", log, *words, "--plot", "a.png", "--html", "a.html") == alone
        assert names_here() == ["a.html", "a.png", "gpu.csv"]

    def test_that_cannot_be_written_hides_no_other_and_no_damage(
        self, log: Path, gpumon: Shell
    ) -> None:
        packed = log.with_name("gpu.csv.gz")
        packed.write_bytes(gzip.compress(BURSTY.encode())[:-9])

        ended = gpumon("analyze", packed, "--plot", "nowhere/a.svg", "--html", "a.html")

        assert ended.code == 1
        assert [line.split(": ")[1] for line in ended.err.splitlines()] == [
            str(packed), "nowhere/a.svg"
        ]  # fmt: skip
        assert Path("a.html").exists()

    def test_of_a_log_that_cannot_be_read_is_not_made(self, log: Path, gpumon: Shell) -> None:
        log.write_bytes(b"")

        assert gpumon("analyze", log, "--html", "a.html").code == 1
        assert names_here() == ["gpu.csv"]


class TestWithoutMatplotlib:
    @pytest.mark.parametrize("words", [["--plot", "a.png"], ["--html", "a.html"]])
    def test_the_report_comes_all_the_same_with_what_to_install_for_a_picture(
        self, log: Path, gpumon: Shell, monkeypatch: pytest.MonkeyPatch, words: list[str]
    ) -> None:
        for name in [name for name in sys.modules if name.startswith("gpumon.outlets.plot")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)

        told = gpumon("analyze", log, *words)

        assert (told.code, told.out) == (1, gpumon("analyze", log).out)
        assert f"{sys.executable} -m pip install 'matplotlib>=3.8'" in told.err
        assert told.err.count("\n") == 1
        assert names_here() == ["gpu.csv"]

    def test_a_report_never_asks_for_it(self, log: Path) -> None:
        script = (
            "import sys; from gpumon.cli.main import main; "
            f"main(['analyze', {str(log)!r}]); sys.exit('matplotlib' in sys.modules)"
        )

        assert ran_python("-c", script).returncode == 0
