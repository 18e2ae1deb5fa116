"""Specification of the progress bar: on a terminal only, and only if it takes over a second."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from gpumon.cli import reading_progress
from gpumon.cli.reading_progress import ReadingProgress
from gpumon.sources.logs.log_text import LogText

ITEMS = range(100_000)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def text(tmp_path: Path) -> Iterator[LogText]:
    path = tmp_path / "gpu[bold].csv"
    path.write_text("1\n" * 1000)
    with LogText(str(path)) as opened:
        yield opened


def shown_on(stream: io.StringIO, text: LogText) -> str:
    with ReadingProgress(text, stream) as progress:
        assert sum(progress.watched(ITEMS)) == sum(ITEMS)
    return stream.getvalue()


class TestABar:
    def test_is_shown_after_a_second(self, text: LogText, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)

        assert "gpu[bold].csv" in shown_on(Terminal(), text)

    def test_is_not_shown_before(self, text: LogText, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", lambda: 7.0)

        assert shown_on(Terminal(), text) == ""

    def test_is_not_shown_where_nobody_looks(
        self, text: LogText, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)

        assert shown_on(io.StringIO(), text) == ""
