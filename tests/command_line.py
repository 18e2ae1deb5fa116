"""``gpumon`` in this process: its exit code and output."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.cli.main import main


class Ended(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def is_refused_in_a_sentence(self) -> bool:
        """Whether it failed with one printable line of ours."""
        sentence, line_break, rest = self.err.partition("\n")
        is_ours = sentence.startswith("gpumon: ") and sentence.isprintable()
        return self.code != 0 and is_ours and line_break == "\n" and not rest


class Terminal(io.StringIO):
    """A stream of a terminal."""

    def isatty(self) -> bool:
        return True


class Shell:
    """Runs commands; each output is of one command."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *args: str | Path, stdin: bytes = b"") -> Ended:
        self._capsys.readouterr()
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code: Any = main([str(arg) for arg in args])
        except SystemExit as ended:
            code = ended.code
        return Ended(code, *self._capsys.readouterr())
