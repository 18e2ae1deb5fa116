"""Logs as other people published them; they are not kept here, so this runs where they lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.cli.analyze import analyse_file
from gpumon.sources.logs.log_sample import LogOptions

FOLDER = Path(os.environ.get("GPUMON_PUBLIC_LOGS", Path(__file__).parents[3] / "shared/traces"))


@pytest.mark.skipif(not FOLDER.is_dir(), reason="there are no public logs here")
class TestPublicLogs:
    def test_of_tables_are_read_in_full(self) -> None:
        report = analyse_file(str(FOLDER / "aucurriculum_a40.log"), LogOptions())

        (gpu,) = report.gpus
        assert gpu.name == "NVIDIA A40"
        assert report.skipped_lines == 0
        assert report.period_ns == 60 * 10**9
        assert gpu.totals.observed_ns / 60e9 == pytest.approx(134, abs=1)
