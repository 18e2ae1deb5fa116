"""A line of source is read only where the process's owner could read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.core.stacks.stack import StackFrame
from gpumon.sources.stacks.source_lines import SourceLines


def line_of(path: Path | str, line: int | None = 2) -> str:
    return SourceLines(os.getpid()).line_of(StackFrame("main", str(path), line))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(b"import time\n    for batch in loader:\nx = '\x1b[31m\xff'\n")
    return path


class TestALine:
    def test_is_shown_without_indentation(self, script: Path) -> None:
        assert line_of(script) == "for batch in loader:"

    def test_has_nothing_that_a_terminal_obeys(self, script: Path) -> None:
        assert line_of(script, 3).isprintable()

    @pytest.mark.parametrize("line", [None, 0, -1, 99])
    def test_that_is_not_there_is_empty(self, script: Path, line: int | None) -> None:
        assert line_of(script, line) == ""

    @pytest.mark.parametrize("path", ["", "/etc/shadow", "/dev/zero", "<string>", "/no/such.py"])
    def test_of_no_python_file_is_empty(self, path: str) -> None:
        assert line_of(path) == ""

    def test_behind_a_link_is_not_followed(self, script: Path, tmp_path: Path) -> None:
        (tmp_path / "link.py").symlink_to(script)

        assert line_of(tmp_path / "link.py") == ""

    def test_of_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.py")

        assert line_of(tmp_path / "pipe.py") == ""

    def test_is_kept_when_the_file_is_gone(self, script: Path) -> None:
        lines, frame = SourceLines(os.getpid()), StackFrame("main", str(script), 2)
        before = lines.line_of(frame)
        script.unlink()

        assert lines.line_of(frame) == before == "for batch in loader:"
