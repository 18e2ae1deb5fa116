"""Specification of "busy, but under-filled": when it is reported, and when it is not."""

from __future__ import annotations

from operator import add

import pytest

from gpumon.core.device.fill import (
    NO_FILL,
    Evidence,
    GpuFill,
    Mean,
    fill_since,
    is_held_down,
    is_under_filled,
)
from gpumon.core.settings.detector import FillSettings
from tests.builders.report import gpm_fill, mean, power_fill


class TestAGpuIsUnderFilled:
    @pytest.mark.parametrize(
        "fill",
        [
            pytest.param(gpm_fill(0.24), id="a quarter of its multiprocessors works"),
            pytest.param(
                power_fill(180.0), id="of its power at full clock, and nothing more is known"
            ),
            pytest.param(gpm_fill(0.24, held=0.1), id="reduced for a little of the time"),
            pytest.param(power_fill(180.0, held=0.1), id="held down a little, by its power"),
        ],
    )
    def test_where(self, fill: GpuFill) -> None:
        assert is_under_filled(fill)


class TestAGpuIsNot:
    @pytest.mark.parametrize(
        "fill",
        [
            pytest.param(None, id="nothing is known"),
            pytest.param(NO_FILL, id="nothing was ever measured"),
            pytest.param(gpm_fill(0.5), id="at the threshold"),
            pytest.param(gpm_fill(0.96), id="full"),
            pytest.param(power_fill(350.0), id="its power is at the threshold"),
            pytest.param(gpm_fill(0.24, seconds=59.0), id="within the first minute"),
            pytest.param(power_fill(180.0, seconds=59.0), id="within it, by its power"),
            pytest.param(gpm_fill(0.24, memory=0.7), id="the memory is the limit"),
        ],
    )
    def test_where(self, fill: GpuFill | None) -> None:
        assert not is_under_filled(fill)

    def test_by_its_power_where_activity_says_that_it_is_full(self) -> None:
        full = gpm_fill(0.9)

        assert full.power_ratio == pytest.approx(180 / 700)
        assert not is_under_filled(full)

    @pytest.mark.parametrize("fill", [gpm_fill(0.24, held=0.6), power_fill(180.0, held=0.6)])
    def test_where_heat_or_power_holds_its_clocks_down_most_of_the_time(
        self, fill: GpuFill
    ) -> None:
        assert is_held_down(fill)
        assert not is_under_filled(fill)

    def test_by_a_wish_for_other_thresholds(self) -> None:
        assert not is_under_filled(gpm_fill(0.24), FillSettings(sm_active_below=0.2))


class TestWhatItRestsOn:
    def test_is_activity_before_power(self) -> None:
        assert gpm_fill(0.24).evidence is Evidence.GPM
        assert power_fill(180.0).evidence is Evidence.POWER
        assert NO_FILL.evidence is None

    def test_is_reported_in_watts_too(self) -> None:
        fill = power_fill(180.0)

        assert fill.power_watts == pytest.approx(180.0)
        assert fill.power_limit_watts == pytest.approx(700.0)
        assert NO_FILL.power_watts is None
        assert NO_FILL.power_ratio is None


class TestTheTimeBetweenTwoReadings:
    def test_is_diagnosed_by_what_was_added_in_it(self) -> None:
        before, added = gpm_fill(0.9, seconds=120.0), mean(0.2, 120.0)
        both = Mean(*map(add, before.sm_active, added))
        after = before._replace(sm_active=both)

        since = fill_since(before, after)

        assert not is_under_filled(after)
        assert since is not None
        assert since.sm_active.ratio == pytest.approx(0.2)
        assert is_under_filled(since)

    def test_is_nothing_where_nothing_was_added(self) -> None:
        assert fill_since(gpm_fill(0.24), gpm_fill(0.24)) is None

    def test_is_all_of_it_where_there_was_nothing_before(self) -> None:
        assert fill_since(None, gpm_fill(0.24)) == gpm_fill(0.24)
