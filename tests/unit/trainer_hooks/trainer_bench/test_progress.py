"""Specification of the bars: on a terminal only, and never among the results."""

from __future__ import annotations

import io

import pytest

from trainer_hooks.trainer_bench.progress import bar_for, bar_on_stderr, no_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_is_shown_on_a_terminal_only(self) -> None:
        assert bar_for(Terminal()) is bar_on_stderr
        assert bar_for(io.StringIO()) is no_bar

    def test_goes_to_stderr(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)

        with bar_on_stderr("GPU:0 [64]", 10.0) as advance:
            advance(5.0)

        assert "GPU:0 [64]" in terminal.getvalue()
        assert capsys.readouterr().out == ""
