"""Specification of moments as tools for people print them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from gpumon.sources.logs.stamps.date_lines import find_ctime

EVENING = datetime(2026, 1, 24, 21, 5, 14, tzinfo=timezone.utc)


class TestAMoment:
    @pytest.mark.parametrize(
        "line",
        [
            "Sat Jan 24 21:05:14 2026",
            "node-7      Sat Jan 24 21:05:14 2026  580.95.05",
            "Sat Jan 24 21:05:14 UTC 2026",
            "Sat 24 Jan 2026 09:05:14 PM UTC",
            "Sat 24 Jan 2026 09:05:14 PM",
            "Sat 24 Jan 2026 21:05:14 CET",
            "Saturday, January 24 21:05:14 2026",
        ],
    )
    def test_is_found_in_its_line(self, line: str) -> None:
        assert find_ctime(line) == EVENING.timestamp() * 1e9

    def test_may_have_a_day_of_one_digit(self) -> None:
        first = datetime(2026, 2, 1, tzinfo=timezone.utc)

        assert find_ctime("Sun Feb  1 00:00:00 2026") == first.timestamp() * 1e9

    @pytest.mark.parametrize(
        "line",
        ["", "Sat Feb 30 21:05:14 2026", "Sat Jan 24 25:05:14 2026", "Sat Jan 24 21:05 2026"],
    )
    def test_that_does_not_exist_is_none(self, line: str) -> None:
        assert find_ctime(line) is None
