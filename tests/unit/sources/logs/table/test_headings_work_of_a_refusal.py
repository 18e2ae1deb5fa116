"""Specification of what a refusal costs: so many steps, whatever the file holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from string import ascii_lowercase

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table import headings
from gpumon.sources.logs.table.headings import column_named
from tests.builders.logs import analyse_file
from tests.calls import calls_of

MEGABYTE = 1_000_000
MOST_CALLS = 10_000_000
"""Calls of functions, a tenth of a microsecond each in the mean."""
WORDS = ("loss", "step", "the", "model", "GPU", "memory", "epoch", "12", "0.1", "learning")


class Draw(random.Random):
    """What files are made of."""

    def words(self, count: int) -> str:
        return " ".join(self.choices(WORDS, k=count))

    def letters(self, count: int) -> str:
        return "".join(self.choices(ascii_lowercase, k=count))

    def many(self, count: int, form: str = "{}") -> str:
        return ",".join(form.format(self.letters(3)) for _ in range(count))


def moment(at: int) -> str:
    return str(datetime(2026, 5, 1) + timedelta(seconds=at))


FILES: dict[str, Callable[[Draw, int], str]] = {
    "32 writers": lambda draw, at: f"worker-{at % 32}: {draw.words(6)}",
    "32 writers at a time": lambda draw, at: (
        f"[pod-{at % 32}] {moment(at)} [rank{at % 31}]: {draw.words(4)}"
    ),
    "32 writers with levels": lambda draw, at: (
        f"{moment(at)} n{at % 32} INFO - r{at % 32}: {draw.words(4)}, {at}"
    ),
    "long headers with a utilisation": lambda draw, at: (
        "timestamp,utilization.gpu [%]," + draw.many(480)
    ),
    "headings of GPUs": lambda draw, at: draw.many(250, "gpu_{}"),
    "rows that run back": lambda draw, at: f"{moment(2_000_000 - at)}, {at % 100} %",
    "a new GPU in each object": lambda draw, at: f'{{"system.gpu.{at}.gpu": null}}',
}
SINGLE_LINES = {
    "commas": "," * MEGABYTE,
    "brackets": "\x1b[0m" * (MEGABYTE // 4),
    "dashes": "a - " * (MEGABYTE // 4),
    "headings of nothing": "time,gpu0 util,gpu1 util" + "," * MEGABYTE,
    "headings of little": "time,gpu0 util,gpu1 util" + ",ab" * (MEGABYTE // 3),
}


def file_of(name: str) -> str:
    draw, size = Draw(7), 0
    lines: list[str] = []
    while size < MEGABYTE:
        lines.append(FILES[name](draw, len(lines)) + "\n")
        size += len(lines[-1])
    return "".join(lines)


def refuse(path: Path) -> None:
    with pytest.raises(UnreadableLogError):
        analyse_file(str(path), LogOptions())


class TestAFileOfAMegabyte:
    @pytest.mark.parametrize("name", [*FILES, *SINGLE_LINES])
    def test_is_refused_with_few_calls(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / "file"
        path.write_text(SINGLE_LINES.get(name) or file_of(name))

        assert calls_of(lambda: refuse(path)) < MOST_CALLS


class TestAHeading:
    def test_that_is_as_long_as_a_file_is_not_taken_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each of its brackets was compared with each sign after it."""
        taken: list[str] = []
        monkeypatch.setattr(headings, "heading_of", taken.append)

        assert column_named("[0m" * 20_000) is None
        assert taken == []
