"""Specification by example: one small log of each shape that people have, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import analyse_file

HERE = Path(__file__).parent


def report_of(name: str) -> Report:
    return analyse_file(str(HERE / name), LogOptions())


@pytest.mark.parametrize(
    ("name", "gpus", "observed_s", "skipped", "started_at"),
    [
        ("header_units_mostly_idle.csv", 1, 40.0, 0, "2025-03-09T14:04:58.999"),
        ("relative_time_restless.csv", 1, 30.0, 0, None),
        ("no_header_rounds.csv", 1, 300.5, 0, "2025-03-09T14:04:54.992"),
        ("two_gpus_by_uuid_nounits.csv", 2, 30.0, 0, "2025-03-09T14:04:59.000"),
        ("powershell_utf16.csv", 1, 20.0, 0, "2025-03-09T14:04:59.000"),
        ("repeated_header_na.csv", 1, 21.0, 4, "2025-03-09T14:04:59.000"),
        ("epoch_semicolons.csv", 2, 15.0, 0, "2025-03-09T14:04:59.500+00:00"),
        ("numbers_only.txt", 1, 20.0, 0, None),
    ],
)
class TestEachShape:
    def test_is_read_in_full(
        self, name: str, gpus: int, observed_s: float, skipped: int, started_at: str | None
    ) -> None:
        report = report_of(name)

        assert len(report.gpus) == gpus
        assert report.observed_ns / 1e9 == pytest.approx(observed_s, abs=0.1)
        assert report.skipped_lines == skipped
        assert report.started_at == started_at


class TestTheVerdicts:
    @pytest.mark.parametrize(
        ("name", "verdicts"),
        [
            ("two_gpus_by_uuid_nounits.csv", ["healthy", "starvation_suspected"]),
            ("no_header_rounds.csv", ["starvation_suspected"]),
            ("powershell_utf16.csv", ["healthy"]),
            ("numbers_only.txt", ["healthy"]),
        ],
    )
    def test_follow_from_the_pattern(self, name: str, verdicts: list[str]) -> None:
        found = [gpu.verdict.name for gpu in report_of(name).gpus]

        assert found == [VerdictName(verdict) for verdict in verdicts]
