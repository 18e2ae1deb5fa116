"""Specification of `gpumon analyze --plot` and `--html`."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.cli.main import main
from tests.builders_logs import smi_log
from tests.builders_time import rhythm

BURSTY = smi_log([round(100 * ratio) for ratio in rhythm(3, 2, 30)])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "gpu.csv"
    path.write_text(BURSTY)
    return path


class TestAPlot:
    @pytest.mark.parametrize(
        ("name", "begin"), [("a.PNG", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
    )
    def test_is_what_its_ending_says(
        self, log: Path, tmp_path: Path, name: str, begin: bytes
    ) -> None:
        assert main(["analyze", str(log), "--plot", str(tmp_path / name)]) == 0

        assert (tmp_path / name).read_bytes().startswith(begin)

    def test_comes_beside_the_report(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["analyze", str(log)])
        alone = capsys.readouterr()

        main(["analyze", str(log), "--plot", str(tmp_path / "a.svg")])

        assert capsys.readouterr() == alone

    def test_and_a_page_leave_json_pure(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["--plot", str(tmp_path / "a.png"), "--html", str(tmp_path / "a.html")]

        assert main(["analyze", "--json", str(log), *words]) == 0

        assert json.loads(capsys.readouterr().out)["schema"] == "gpumon.report/1"
        assert names_in(tmp_path) == ["a.html", "a.png", "gpu.csv"]

    def test_that_cannot_be_written_is_one_sentence_after_the_report(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "nowhere" / "a.svg"

        assert main(["analyze", str(log), "--plot", str(path)]) == 1

        printed = capsys.readouterr()
        assert printed.out.startswith("Verdict: ")
        assert printed.err == f"gpumon: {path}: cannot be written: No such file or directory\n"

    def test_that_cannot_be_written_hides_no_other_and_no_damage(
        self, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        packed = log.with_name("gpu.csv.gz")
        packed.write_bytes(gzip.compress(BURSTY.encode())[:-9])
        nowhere, page = tmp_path / "nowhere" / "a.svg", tmp_path / "a.html"

        assert main(["analyze", str(packed), "--plot", str(nowhere), "--html", str(page)]) == 1

        err = capsys.readouterr().err
        assert f"{nowhere}: cannot be written" in err
        assert f"{packed}: the gzip data is cut short or damaged" in err
        assert page.exists()

    def test_of_a_log_that_cannot_be_read_is_not_made(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "empty.csv").touch()

        code = main(["analyze", str(tmp_path / "empty.csv"), "--html", str(tmp_path / "a.html")])

        assert code == 1
        assert not (tmp_path / "a.html").exists()


class TestMisuse:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["gpu.csv", "--plot", "a.jpg"], "a.jpg: a plot is a .png, a .svg or a .pdf"),
            (["gpu.csv", "--plot", "picture"], "picture: a plot is a .png, a .svg or a .pdf"),
            (["gpu.csv", "gpu.csv", "--plot", "a.svg"], "draw one log: name one FILE"),
            (["gpu.csv", "gpu.csv", "--html", "a.html"], "draw one log: name one FILE"),
            (["gpu.csv", "--html", "-"], "not the standard output"),
            (["gpu.csv", "--html", "./gpu.csv"], "is the log itself"),
            (["gpu.csv", "--html", "a.svg", "--plot", "a.svg"], "need a file each"),
        ],
    )
    def test_is_one_sentence_before_anything_is_read(
        self,
        words: list[str],
        sentence: str,
        log: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(log.parent)

        assert main(["analyze", *words]) == 2

        printed = capsys.readouterr()
        assert printed.out == ""
        assert sentence in printed.err
        assert log.read_text() == BURSTY
        assert names_in(log.parent) == ["gpu.csv"]


class TestWithoutMatplotlib:
    @pytest.mark.parametrize("words", [["--plot", "a.png"], ["--html", "a.html"]])
    def test_a_picture_is_refused_at_once_with_what_to_install(
        self, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str], words: list[str],
    ) -> None:  # fmt: skip
        monkeypatch.chdir(tmp_path)
        for name in [name for name in sys.modules if name.startswith("gpumon.outlets.plot")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "matplotlib", None)

        assert main(["analyze", str(log), *words]) == 2

        refused = capsys.readouterr()
        assert refused.out == ""
        assert f"{sys.executable} -m pip install 'matplotlib>=3.8'" in refused.err
        assert names_in(tmp_path) == ["gpu.csv"]

    def test_a_report_never_asks_for_it(self, log: Path) -> None:
        script = (
            "import sys; from gpumon.cli.main import main; "
            f"main(['analyze', {str(log)!r}]); sys.exit('matplotlib' in sys.modules)"
        )

        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)

        assert done.returncode == 0, done.stderr
