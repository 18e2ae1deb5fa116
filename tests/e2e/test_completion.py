"""Tests of the completion, in a real shell."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command_line import Shell
from tests.e2e.pty_terminal import on_a_terminal
from tests.needs import missing, needed


def shown_by_bash(script: Path, typed: str, folder: Path) -> list[str]:
    """What an interactive bash shows for these keys."""
    begun = f"cd {folder}\nsource {script}\ngpumon() {{ :; }}\n"
    written = on_a_terminal(
        [needed("bash"), "--norc", "--noprofile", "-i"],
        environ={"PATH": os.environ["PATH"], "HOME": str(folder)},
        typed=f"{begun}{typed}\nexit\n",
    )
    return written.lines


@pytest.fixture
def gpumon_with_shtab(gpumon: Shell) -> Shell:
    if find_spec("shtab") is None:
        missing("shtab is not installed (extra [completion])")
    return gpumon


@pytest.fixture
def script(gpumon_with_shtab: Shell, tmp_path: Path) -> Path:
    path = tmp_path / "gpumon.bash"
    path.write_text(gpumon_with_shtab("completion", "bash").out)
    return path


class TestATabInBash:
    @pytest.mark.parametrize(
        ("typed", "shown"),
        [
            ("gpumon re\t\t", "record replay report"),
            ("gpumon report --fail-if-s\t", "--fail-if-starved-above"),
            ("gpumon dstat un\t", "gpumon dstat uninstall"),
            ("gpumon replay nig\t", "gpumon replay night.gpumon"),
        ],
    )
    def test_completes(self, typed: str, shown: str, script: Path, tmp_path: Path) -> None:
        folder = tmp_path / "home"
        folder.mkdir()
        (folder / "night.gpumon").touch()

        lines = shown_by_bash(script, typed, folder)

        assert [line for line in lines if shown in " ".join(line.split())] != []


class TestTheScript:
    def test_for_zsh_names_its_command(self, gpumon_with_shtab: Shell) -> None:
        assert gpumon_with_shtab("completion", "zsh").out.startswith("#compdef gpumon\n")

    def test_starts_no_python(self, script: Path) -> None:
        assert "python" not in script.read_text()

    def test_needs_shtab_which_the_refusal_names(
        self, gpumon: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "shtab", None)

        refused = gpumon("completion", "bash")

        assert refused.is_refused_in_a_sentence
        assert refused.code == 1
        assert "pip install shtab" in refused.err
