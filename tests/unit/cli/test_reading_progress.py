"""Specification of the progress bar: on a terminal only, and only if it takes over a second."""

from __future__ import annotations

import gzip
import io
import random
import re
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


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


def shown_on(stream: io.StringIO, text: LogText) -> str:
    with ReadingProgress(text, stream) as progress:
        assert sum(progress.watched(ITEMS)) == sum(ITEMS)
    return stream.getvalue()


class TestABar:
    def test_is_shown_after_a_second(self, text: LogText, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)

        assert "gpu[bold].csv" in shown_on(Terminal(), text)

    def test_tells_how_long_it_will_take(
        self, text: LogText, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)

        assert re.search(r"\d+ %.*(\d:\d\d:\d\d|-:--:--)", shown_on(Terminal(), text))

    def test_moves_by_the_packed_size_of_a_packed_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)
        path = tmp_path / "gpu.csv.gz"
        noise = random.Random(1)
        path.write_bytes(
            gzip.compress("".join(f"{noise.random()}\n" for _ in range(60_000)).encode())
        )
        stream = Terminal()

        with LogText(str(path)) as packed, ReadingProgress(packed, stream, look_every=50) as bar:
            assert sum(1 for _ in bar.watched(packed.lines())) == 60_000

        percents = [int(found) for found in re.findall(r"(\d+) %", stream.getvalue())]
        assert percents[-1] >= 90
        assert max(percents) <= 100

    def test_counts_rows_where_nobody_knows_how_many_come(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)

        with LogText("-", Pipe(b"1\n" * 1000)) as piped:
            shown = shown_on(Terminal(), piped)

        assert re.search(r"reading standard input.* [\d,]+ rows", shown)
        assert "%" not in shown

    def test_is_not_shown_before(self, text: LogText, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", lambda: 7.0)

        assert shown_on(Terminal(), text) == ""

    def test_is_not_shown_where_nobody_looks(
        self, text: LogText, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading_progress, "monotonic", count().__next__)

        assert shown_on(io.StringIO(), text) == ""
