"""Specification of the bars: on a terminal only, and never among the results."""

from __future__ import annotations

import io

import pytest

from trainer_hooks.trainer_bench.measuring import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_bar_is_shown_on_a_terminal_only_and_goes_to_stderr(
    kind: type[io.StringIO], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = kind()
    monkeypatch.setattr("sys.stderr", stderr)

    with progress_bar("GPU:0 [64]", 10.0) as advance:
        advance(5.0)

    assert ("GPU:0 [64]" in stderr.getvalue()) is stderr.isatty()
    assert stderr.isatty() or stderr.getvalue() == ""
    assert capsys.readouterr().out == ""
