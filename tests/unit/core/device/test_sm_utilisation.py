"""Specification of low SM utilisation: when it is reported, and when it is not."""

from __future__ import annotations

from operator import add

import pytest

from gpumon.core.device.sm_utilisation import (
    NO_FILL,
    GpuFill,
    Mean,
    fill_since,
    is_under_filled,
)
from gpumon.core.settings.detector import FillSettings
from tests.builders.report import gpm_fill, mean, power_fill
from tests.builders.time import s

LOW: dict[str, tuple[GpuFill | None, bool]] = {
    "with a quarter of its multiprocessors at work": (gpm_fill(0.24), True),
    "with little power, if nothing else is known": (power_fill(180.0), True),
    "though heat held it down for a little of the time": (gpm_fill(0.24, held=0.1), True),
    "with little power, held down for a little of it": (power_fill(180.0, held=0.1), True),
    "never if nothing is known": (None, False),
    "never if nothing was measured": (NO_FILL, False),
    "never at the threshold": (gpm_fill(0.5), False),
    "never with little power but full activity": (gpm_fill(0.9), False),
    "never at the threshold of power": (power_fill(350.0), False),
    "never within the first minute": (gpm_fill(0.24, seconds=59.0), False),
    "never within the first minute, by power": (power_fill(180.0, seconds=59.0), False),
    "never if memory is the limit": (gpm_fill(0.24, memory=0.7), False),
    "never if heat held it down for half of the time": (gpm_fill(0.24, held=0.5), False),
    "never if heat held it down, by power": (power_fill(180.0, held=0.6), False),
}


@pytest.mark.parametrize("when", LOW)
def test_sm_utilisation_is_low(when: str) -> None:
    fill, is_low = LOW[when]

    assert is_under_filled(fill) is is_low


def test_sm_utilisation_is_low_by_other_thresholds() -> None:
    assert not is_under_filled(gpm_fill(0.24), FillSettings(sm_active_below=0.2))


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

    def test_has_what_held_the_clocks_down_in_it(self) -> None:
        since = fill_since(gpm_fill(0.9, held=0.1), gpm_fill(0.9, seconds=240.0, held=0.25))

        assert since is not None
        assert (since.throttle_known_ns, since.throttled_by_ns) == (
            s(120),
            {"hw_thermal_slowdown": s(48)},
        )

    def test_is_nothing_if_nothing_was_added(self) -> None:
        assert fill_since(gpm_fill(0.24), gpm_fill(0.24)) is None

    def test_is_all_of_it_if_there_was_nothing_before(self) -> None:
        assert fill_since(None, gpm_fill(0.24)) == gpm_fill(0.24)
