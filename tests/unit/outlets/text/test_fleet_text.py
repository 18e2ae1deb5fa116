"""Tests of the text on many machines; its sentences are in ``tests/golden``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.fleet.fleet_report import RUNS, FleetReport, Loser, Prices, Ranking, Rest
from gpumon.outlets.text.fleet_text import render_fleet_report, time_rows
from gpumon.outlets.text.style import TextStyle
from tests.unit.outlets.plot.test_fleet_html import SHOWN

HOUR_S = 3_600.0
LONG = Loser(name="n" * 200, lost_by_cause={"imbalance": 9e9}, busy_seconds=1.0, users=("u" * 90,))
LARGE = replace(
    SHOWN,
    observed_seconds=1e11,
    expected_seconds=1e11,
    lost_by_cause={"imbalance": 4e10},
    rankings=(Ranking(dimension=RUNS, worst=(LONG,) * 10, rest=Rest(9_990, 1e10)),),
)


def lines(report: FleetReport, style: TextStyle = TextStyle()) -> list[str]:  # noqa: B008
    return render_fleet_report(report, style).splitlines()


class TestTheText:
    @pytest.mark.parametrize("prices", [Prices(), Prices(2.5, 0.3)], ids=["free", "priced"])
    def test_of_long_names_and_large_figures_has_80_columns(self, prices: Prices) -> None:
        assert max(map(len, lines(replace(LARGE, prices=prices)))) <= 80

    def test_is_ascii_where_the_stream_is(self) -> None:
        assert render_fleet_report(SHOWN, TextStyle(unicode=False)).isascii()

    def test_shows_nothing_that_moves_the_cursor(self) -> None:
        assert all(line.isprintable() for line in lines(SHOWN))

    def test_is_coloured_by_what_was_lost(self) -> None:
        first = lines(SHOWN, TextStyle(colour=True))[0]
        healthy = replace(SHOWN, lost_by_cause={}, expected_seconds=None, few_runs=())

        assert first.startswith("\x1b[33m")
        assert lines(healthy, TextStyle(colour=True))[0].startswith("\x1b[32m")


class TestWhereTheTimeWent:
    def test_adds_up_to_what_was_observed(self) -> None:
        assert sum(row[1] for row in time_rows(SHOWN)) == pytest.approx(SHOWN.observed_seconds)

    def test_leaves_out_what_would_be_shown_as_zero(self) -> None:
        short = replace(
            SHOWN, observed_seconds=1_290.0, busy_seconds=1_288.8, not_in_use_seconds=0.0,
            lost_by_cause={},
        )  # fmt: skip

        assert [title for title, *_ in time_rows(short)] == ["busy"]

    def test_leaves_out_what_is_next_to_nothing(self) -> None:
        few = replace(SHOWN, lost_by_cause={"compile": 1.0})

        assert not any("compiling" in title for title, *_ in time_rows(few))
