"""Specification of lines as long as a log: what is found in them takes no longer than to read them.

A pattern that looks at the same blanks again from each of them needs minutes for a megabyte, and
the user waits without a message.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders.logs import analyse_file
from tests.logs.test_samples import FOLDER
from tests.patience import no_hang

SIGNS = 1_000_000
LENGTHS = (900, 4_000, 65_000)
"""Each just below what some reader still takes for a line of its log."""

LINES = {
    "a heading, W&B's": ("wide_json--wandb_events.jsonl", '{"_timestamp": 1, "time', " ", 'x": 1}'),
    "a heading of a CSV": ("wide_csv--plain.csv", "time,gpu0 util,a", " ", "b"),
    "a name, of gpustat": ("gpustat_text--interval.txt", "[0] NVIDIA", " ", "x"),
    "a state, of gpustat": ("gpustat_text--interval.txt", "[0] A40 | 60'C,", " ", "| 1 / 2 MB"),
    "an unknown state": ("gpustat_text--interval.txt", "[0] A40 | 60'C,", "?", "| 1 / 2 MB"),
    "a name, of nvidia-smi": (
        "nvidia_smi_table--driver_550_under_date.log", "|   0  NVIDIA", " ",
        "a |   00000000:17:00.0 Off |                    0 |",
    ),
    "dashes after a time": ("wide_csv--plain.csv", "2026/03/02 09:00:00.123,", " -", "x"),
    "colons after a time": ("wide_csv--plain.csv", "[2026/03/02 09:00:00.123]", ":", "x"),
    "dashes without a gap": ("wide_csv--plain.csv", "2026/03/02 09:00:00.123 ", "-", "x"),
    "field numbers, of dcgmi": ("dcgmi_dmon--utilisation_and_memory.txt", "", " ", "x"),
}  # fmt: skip


class TestALineWithoutEnd:
    @pytest.mark.parametrize("name", LINES)
    def test_is_passed_over_as_fast_as_others_of_its_length(
        self, name: str, tmp_path: Path
    ) -> None:
        sample, start, sign, end = LINES[name]
        lines = (FOLDER / sample).read_text().splitlines(keepends=True)
        at = 0 if sample.endswith(".csv") else len(lines) // 2  # where its headings stand
        log = tmp_path / "log"
        for length in LENGTHS:
            long = (start + sign * length + end + "\n") * (SIGNS // length)
            log.write_text("".join((*lines[:at], long, *lines[at:])))

            with no_hang(), contextlib.suppress(UnreadableLogError):
                assert analyse_file(str(log), LogOptions()).gpus
