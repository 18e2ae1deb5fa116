"""Specification of numbers: a line without an end is one line, in every log read by lines."""

from __future__ import annotations

from itertools import chain

import pytest

from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import MAX_PIECE, LogText
from tests.logs.test_samples import FOLDER

ENDLESS = ("9" * MAX_PIECE, "9" * MAX_PIECE, "9\n")
BY_LINES = (
    "dcgmi_dmon--utilisation_and_memory.txt",
    "gpustat_json--one_a_line.jsonl",
    "gpustat_text--interval.txt",
    "nvidia_smi_dmon--pucm_date_and_time.txt",
    "nvidia_smi_q--utilization_old.txt",
    "nvidia_smi_table--driver_580_without_dates.log",
    "nvitop_table--loop.txt",
    "wide_json--wandb_events.jsonl",
)


class TestALineWithoutAnEnd:
    @pytest.mark.parametrize("sample", BY_LINES)
    def test_is_one_line_that_cannot_be_used(self, sample: str) -> None:
        with LogText(str(FOLDER / sample)) as text:
            lines = list(text.lines())

        reader = reader_for(chain(lines, ENDLESS, lines), name="a log", options=LogOptions())
        rows = list(reader.samples())

        assert len(rows) >= 120
        assert any(f"first at line {len(lines) + 1}." in note for note in reader.facts().notes)
        assert not any("Skipped 3 lines" in note for note in reader.facts().notes)
