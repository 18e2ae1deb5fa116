"""Files that are made to be slow are refused in few calls, or read in seconds.

Code or a pattern that looks at the same blanks again from each of them needs minutes for them.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from string import ascii_lowercase

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.table import headings
from gpumon.sources.logs.table.headings import column_named
from tests.builders.logs import NO_OPTIONS, analyse_file
from tests.call_count import count_calls
from tests.logs.test_samples import FOLDER
from tests.waiting import no_hang

MEGABYTE = 1_000_000
MAX_CALLS = 10_000_000
"""Calls of functions to refuse a megabyte, a tenth of a microsecond each on average."""
BYTES = 250_000
"""Size of the logs with long lines."""
WORDS = ("loss", "step", "the", "model", "GPU", "memory", "epoch", "12", "0.1", "learning")


class Draw(random.Random):
    """Random parts of lines."""

    def words(self, count: int) -> str:
        return " ".join(self.choices(WORDS, k=count))

    def names(self, count: int, form: str = "{}") -> str:
        return ",".join(
            form.format("".join(self.choices(ascii_lowercase, k=3))) for _ in range(count)
        )


def time_of(at: int) -> str:
    return str(datetime(2026, 5, 1) + timedelta(seconds=at))


LINES: dict[str, Callable[[Draw, int], str]] = {
    "32 writers": lambda draw, at: f"worker-{at % 32}: {draw.words(6)}",
    "32 writers with times": lambda draw, at: (
        f"[pod-{at % 32}] {time_of(at)} [rank{at % 31}]: {draw.words(4)}"
    ),
    "32 writers with levels": lambda draw, at: (
        f"{time_of(at)} n{at % 32} INFO - r{at % 32}: {draw.words(4)}, {at}"
    ),
    "headers with a utilisation": lambda draw, _: (
        "timestamp,utilization.gpu [%]," + draw.names(480)
    ),
    "headings of GPUs": lambda draw, _: draw.names(250, "gpu_{}"),
    "rows that run back": lambda _, at: f"{time_of(2_000_000 - at)}, {at % 100} %",
    "a new GPU in each object": lambda _, at: f'{{"system.gpu.{at}.gpu": null}}',
}
SINGLE_LINES = {
    "commas": "," * MEGABYTE,
    "colours": "\x1b[0m" * (MEGABYTE // 4),
    "dashes": "a - " * (MEGABYTE // 4),
    "empty headings": "time,gpu0 util,gpu1 util" + "," * MEGABYTE,
    "headings": "time,gpu0 util,gpu1 util" + ",ab" * (MEGABYTE // 3),
}


def file_of(name: str) -> str:
    draw = Draw(7)
    lines: list[str] = []
    size = 0
    while size < MEGABYTE:
        lines.append(LINES[name](draw, len(lines)) + "\n")
        size += len(lines[-1])
    return "".join(lines)


def read_or_refuse(path: Path) -> None:
    with no_hang(), contextlib.suppress(UnreadableLogError):
        assert analyse_file(str(path), NO_OPTIONS).gpus


def refuse(path: Path) -> None:
    with pytest.raises(UnreadableLogError):
        analyse_file(str(path), NO_OPTIONS)


@pytest.mark.parametrize("name", [*LINES, *SINGLE_LINES])
def test_a_hostile_megabyte_is_refused_in_few_calls(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_text(SINGLE_LINES.get(name) or file_of(name))

    assert count_calls(lambda: refuse(path)) < MAX_CALLS


def test_a_heading_as_long_as_a_file_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(headings, "heading_of", parsed.append)

    assert column_named("[0m" * 20_000) is None
    assert parsed == []


LENGTHS = (900, 4_000, 65_000)
"""Just below the longest line that some reader accepts."""
LONG_LINES = {
    "heading, W&B": ("wide_json--wandb_events.jsonl", '{"_timestamp": 1, "time', " ", 'x": 1}'),
    "heading, CSV": ("wide_csv--plain.csv", "time,gpu0 util,a", " ", "b"),
    "name, gpustat": ("gpustat_text--interval.txt", "[0] NVIDIA", " ", "x"),
    "state, gpustat": ("gpustat_text--interval.txt", "[0] A40 | 60'C,", " ", "| 1 / 2 MB"),
    "unknown state": ("gpustat_text--interval.txt", "[0] A40 | 60'C,", "?", "| 1 / 2 MB"),
    "name, nvidia-smi": (
        "nvidia_smi_table--driver_550_under_date.log", "|   0  NVIDIA", " ",
        "a |   00000000:17:00.0 Off |                    0 |",
    ),
    "dashes after a time": ("wide_csv--plain.csv", "2026/03/02 09:00:00.123,", " -", "x"),
    "colons after a time": ("wide_csv--plain.csv", "[2026/03/02 09:00:00.123]", ":", "x"),
    "dashes without blanks": ("wide_csv--plain.csv", "2026/03/02 09:00:00.123 ", "-", "x"),
    "field numbers, dcgmi": ("dcgmi_dmon--utilisation_and_memory.txt", "", " ", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG_LINES)
def test_long_lines_take_seconds(name: str, tmp_path: Path) -> None:
    sample, start, sign, end = LONG_LINES[name]
    lines = (FOLDER / sample).read_text().splitlines(keepends=True)
    at = 0 if sample.endswith(".csv") else len(lines) // 2  # above the header, or between rows
    log = tmp_path / "log"
    for length in LENGTHS:
        long = (start + sign * length + end + "\n") * (BYTES // length)
        log.write_text("".join((*lines[:at], long, *lines[at:])))

        read_or_refuse(log)
