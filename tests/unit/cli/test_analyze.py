"""Tests of `gpumon analyze`: its reports, streams and pictures.

Its refusals are in ``tests/golden``.
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
    """A log in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "gpu.csv"
    path.write_text(BURSTY)
    return path


class TestALog:
    def test_is_reported_as_text_and_json(self, log: Path, gpumon: Shell) -> None:
        document = gpumon("analyze", "--json", log).document

        assert gpumon("analyze", log) == (
            0, render_report(analyse_file(str(log), NO_OPTIONS), PLAIN), ""
        )  # fmt: skip
        assert (document["schema"], document["source"]) == ("gpumon.report/1", str(log))
        assert document["gpus"][0]["verdict"] == "starvation_suspected"
        assert document["gpus"][0]["suspected_seconds"] == pytest.approx(90.0, rel=0.02)

    def test_may_come_from_standard_input(self, gpumon: Shell) -> None:
        document = gpumon("analyze", "--json", "-", stdin=BURSTY.encode()).document

        assert (document["source"], document["observed_seconds"]) == ("standard input", 251)

    def test_may_have_its_column_and_period_named(self, tmp_path: Path, gpumon: Shell) -> None:
        path = tmp_path / "numbers.csv"
        path.write_text("7,50,300\n" * 20)

        document = gpumon(
            "analyze", "--json", "--column", "utilization.gpu=2", "--period", "0.5", path
        ).document

        assert document["observed_seconds"] == 10.0
        assert document["gpus"][0]["busy_ratio"] == 0.5


class TestSeveralLogs:
    def test_are_named_above_their_reports(self, log: Path, gpumon: Shell) -> None:
        assert gpumon("analyze", log, log).out.count(f"== {log}\n") == 2

    def test_are_an_array_in_json_without_those_that_cannot_be_read(
        self, log: Path, tmp_path: Path, gpumon: Shell
    ) -> None:
        missing, empty = tmp_path / "missing.csv", tmp_path / "empty.csv"
        empty.touch()

        some = gpumon("analyze", "--json", missing, log, empty, log)
        none = gpumon("analyze", "--json", missing, empty)

        assert (some.code, [one["source"] for one in some.document]) == (1, [str(log)] * 2)
        assert (none.code, none.document) == (1, [])
        for line, path in zip(some.err.splitlines(), (missing, empty), strict=True):
            assert line.startswith(f"gpumon: {path}: ")


class TestAStream:
    def test_may_be_closed_early(self, log: Path) -> None:
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

            assert process.stderr.read() == b""
            assert process.wait(timeout=60) == 0

    def test_in_ascii_gets_ascii(self, log: Path) -> None:
        environ = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

        printed = ran_python("-m", "gpumon", "analyze", log, environ=environ).stdout

        assert printed.isascii()
        assert "<-" in printed

    @pytest.mark.parametrize(
        ("command", "code", "lines"),
        [("- <&-", 1, 1), ('"$1" >&-', 0, 0), ('"$1" gone 2>&-', 1, 0)],
    )
    def test_that_is_closed_at_the_start_is_empty(
        self, command: str, code: int, lines: int, log: Path
    ) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", f'"$0" -m gpumon analyze {command}', sys.executable, str(log)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

        assert (done.returncode, done.stderr.count("\n")) == (code, lines)

    def test_of_errors_gets_no_control_characters_of_a_log(
        self, tmp_path: Path, gpumon: Shell
    ) -> None:
        hostile = tmp_path / "two\nlines.csv"
        hostile.write_text("time,\033[31mred\033[0m,foo\n1,2,3\n2,3,4\n")

        ended = gpumon("analyze", hostile)

        assert ended.is_refused_in_a_sentence
        assert "red" in ended.err


def names_here() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


class TestAPicture:
    @pytest.mark.parametrize(
        ("name", "begin"), [("a.PNG", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
    )
    def test_has_the_format_of_its_name(
        self, log: Path, gpumon: Shell, name: str, begin: bytes
    ) -> None:
        assert gpumon("analyze", log, "--plot", name).code == 0
        assert log.with_name(name).read_bytes().startswith(begin)

    def test_and_a_page_are_written_in_addition_to_the_report(
        self, log: Path, gpumon: Shell
    ) -> None:
        alone = gpumon("analyze", log, "--json")

        assert gpumon("analyze", log, "--json", "--plot", "a.png", "--html", "a.html") == alone
        assert names_here() == ["a.html", "a.png", "gpu.csv"]

    def test_that_cannot_be_written_does_not_prevent_the_other(
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

    def test_is_not_made_without_a_report(self, log: Path, gpumon: Shell) -> None:
        log.write_bytes(b"")

        assert gpumon("analyze", log, "--html", "a.html").code == 1
        assert names_here() == ["gpu.csv"]

    def test_needs_matplotlib_and_the_report_does_not(
        self, log: Path, gpumon: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in [name for name in sys.modules if name.startswith("gpumon.outlets.plot")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)

        ended = gpumon("analyze", log, "--plot", "a.png")

        assert (ended.code, ended.out) == (1, gpumon("analyze", log).out)
        assert f"{sys.executable} -m pip install 'matplotlib>=3.8'" in ended.err
        assert names_here() == ["gpu.csv"]
