"""Tests of the progress bar of reading."""

from __future__ import annotations

import gzip
import io
import random
import re
from itertools import count
from pathlib import Path

import pytest

from gpumon.cli import live_line
from gpumon.cli.live_line import ReadingProgress, asking
from gpumon.sources.logs.log_text import LogText
from tests.command_line import Terminal
from tests.waiting import PATIENCE_S, until

ITEMS = range(100_000)


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def a_second_between_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_line, "monotonic", count().__next__)


def shown_on(stream: io.StringIO, folder: Path) -> str:
    path = folder / "gpu[bold].csv"
    path.write_text("1\n" * 1000)
    with LogText(str(path)) as text, ReadingProgress(text, stream) as progress:
        assert sum(progress.watched(ITEMS)) == sum(ITEMS)
    return stream.getvalue()


class TestTheBar:
    def test_has_the_file_and_the_time_left(self, tmp_path: Path) -> None:
        shown = shown_on(Terminal(), tmp_path)

        assert "gpu[bold].csv" in shown
        assert re.search(r"\d+ %.*(\d:\d\d:\d\d|-:--:--)", shown)

    def test_moves_by_the_packed_size_of_a_packed_log(self, tmp_path: Path) -> None:
        path, noise, stream = tmp_path / "gpu.csv.gz", random.Random(1), Terminal()
        rows = "".join(f"{noise.random()}\n" for _ in range(60_000))
        path.write_bytes(gzip.compress(rows.encode()))

        with LogText(str(path)) as packed, ReadingProgress(packed, stream, check_every=50) as bar:
            assert sum(1 for _ in bar.watched(packed.lines())) == 60_000

        percents = [int(found) for found in re.findall(r"(\d+) %", stream.getvalue())]
        assert percents[-1] >= 90
        assert max(percents) <= 100

    def test_counts_rows_of_a_pipe(self) -> None:
        stream = Terminal()
        with LogText("-", Pipe(b"1\n" * 1000)) as piped, ReadingProgress(piped, stream) as bar:
            assert len([*bar.watched(ITEMS)]) == len(ITEMS)

        assert re.search(r"standard input.* [\d,]+ rows", stream.getvalue())
        assert "%" not in stream.getvalue()

    def test_is_shown_on_a_terminal_only_and_after_a_second(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert shown_on(io.StringIO(), tmp_path) == ""
        monkeypatch.setattr(live_line, "monotonic", lambda: 7.0)
        assert shown_on(Terminal(), tmp_path) == ""


class TestAsking:
    def test_shows_how_many_answers_came(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live_line, "_PATIENCE_S", 0.0)
        stream = Terminal()

        with asking("http://prometheus[bold]", stream) as on_answer:
            on_answer(7)
            assert until(lambda: "7 answers" in stream.getvalue(), PATIENCE_S)

        assert "asking http://prometheus[bold]" in stream.getvalue()

    def test_shows_nothing_of_a_short_wait(self) -> None:
        stream = Terminal()

        with asking("http://prometheus", stream) as on_answer:
            on_answer(7)

        assert not stream.getvalue().strip("\x1b[?25h")

    def test_shows_nothing_where_there_is_no_terminal(self) -> None:
        stream = io.StringIO()

        with asking("http://prometheus", stream) as on_answer:
            on_answer(7)

        assert not stream.getvalue()
