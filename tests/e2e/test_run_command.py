"""`gpumon run`: a command keeps its exit code, signals, input and output, and gains tags."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.programs import ROOT, ran

RUN = (sys.executable, "-m", "gpumon", "run", "--")
PYTHON = sys.executable


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No daemon, and rings of its own."""
    return {"GPUMON_RUNTIME_DIR": str(tmp_path / "run"), "PYTHONPATH": str(ROOT)}


def run(
    environ: Mapping[str, str], *words: str | Path, **options: object
) -> subprocess.CompletedProcess[str]:
    return ran(*RUN, *words, environ=environ)


class TestAnExitCode:
    @pytest.mark.parametrize("code", [0, 3, 127])
    def test_is_that_of_the_command(self, code: int, environ: dict[str, str]) -> None:
        assert run(environ, PYTHON, "-c", f"raise SystemExit({code})").returncode == code

    def test_of_a_script_that_raises_is_1_and_its_traceback_is_shown(
        self, environ: dict[str, str]
    ) -> None:
        done = run(environ, PYTHON, "-c", "1 / 0")

        assert done.returncode == 1
        assert "ZeroDivisionError: division by zero" in done.stderr
        assert "gpumon" not in done.stderr.partition("ZeroDivisionError")[0]

    def test_is_127_with_a_sentence_for_a_missing_command(self, environ: dict[str, str]) -> None:
        done = run(environ, "no-such-command", "train.py")

        assert done.returncode == 127
        assert done.stderr == (
            "gpumon: there is no command 'no-such-command': write `gpumon run -- python train.py`\n"
        )

    def test_is_126_with_a_sentence_for_a_script_that_is_not_executable(
        self, tmp_path: Path, environ: dict[str, str]
    ) -> None:
        script = tmp_path / "train.py"
        script.write_text("print(1)")

        done = run(environ, script)

        assert done.returncode == 126
        assert done.stderr == (
            f"gpumon: '{script}' cannot be run (Permission denied): write `gpumon run -- python "
            f"{script}`\n"
        )

    def test_is_that_of_python_for_a_missing_script(self, environ: dict[str, str]) -> None:
        done = run(environ, PYTHON, "missing.py")

        assert done.returncode == 2
        assert "can't open file" in done.stderr

    def test_is_2_with_the_usage_without_a_command(self, environ: dict[str, str]) -> None:
        done = ran(sys.executable, "-m", "gpumon", "run", environ=environ)

        assert done.returncode == 2
        assert "the command is missing" in done.stderr
        assert "gpumon run -- python train.py" in done.stderr
