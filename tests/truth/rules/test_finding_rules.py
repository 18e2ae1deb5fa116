"""Rules of findings: where each applies, and a similar case where it does not."""

from __future__ import annotations

from gpumon.core.device.sm_utilisation import (
    FillLedger,
    GpuFill,
    are_clocks_reduced,
    is_under_filled,
)
from gpumon.core.device.troubles import is_throttled
from gpumon.core.state import GpuState
from tests.builders.report import seconds_of
from tests.truth.rules.small_workloads import training
from tests.truth.rules.watching import watched_state
from tests.truth.workloads import Workload

HEAT = ("hw_thermal_slowdown",)


def fill_after(*stretches: tuple[int, tuple[str, ...]], works: float = 0.9) -> GpuFill:
    """The fill of a board after stretches of seconds, each with its throttle reasons."""
    ledger, from_s = FillLedger(), 0
    for seconds, reasons in stretches:
        for sample in seconds_of(seconds, sm_active=works, reasons=reasons, from_s=from_s):
            ledger.observe(sample)
        from_s += seconds
    found = ledger.snapshot()
    assert found is not None
    return found


def last(workload: Workload) -> GpuState:
    return watched_state(workload, tagged=True).gpus[0]


class TestStarvedNow:
    def test_applies_while_the_loader_is_late(self) -> None:
        workload = training(late_ms={1_500: 6_000, 1_600: 6_000})

        assert workload.gpus[0].starved[-1, 1] > 170_000
        assert last(workload).totals.starved_now

    def test_does_not_apply_a_minute_and_a_half_after_it_was(self) -> None:
        workload = training(late_ms={600: 6_000, 700: 6_000})

        assert workload.gpus[0].starved[-1, 1] < 100_000
        assert workload.is_starved
        assert not last(workload).totals.starved_now


class TestUnderFilled:
    def test_applies_to_a_busy_board_with_two_fifths_of_its_sms_active(self) -> None:
        assert is_under_filled(fill_after((120, ()), works=0.4))

    def test_does_not_apply_with_three_fifths_active(self) -> None:
        assert not is_under_filled(fill_after((120, ()), works=0.6))

    def test_does_not_apply_within_the_first_minute(self) -> None:
        assert not is_under_filled(fill_after((55, ()), works=0.4))


class TestHeldDown:
    def test_applies_where_heat_slows_a_board_for_most_of_two_minutes(self) -> None:
        assert are_clocks_reduced(fill_after((50, ()), (70, HEAT)))

    def test_does_not_apply_where_heat_slows_it_for_less_than_half_of_them(self) -> None:
        assert not are_clocks_reduced(fill_after((70, ()), (50, HEAT)))


class TestThrottled:
    def test_applies_where_heat_slows_a_board_for_a_fifth_of_a_minute(self) -> None:
        assert is_throttled(fill_after((48, ()), (12, HEAT)))

    def test_does_not_apply_at_the_power_limit(self) -> None:
        assert not is_throttled(fill_after((60, ("sw_power_cap",))))

    def test_does_not_apply_where_a_warm_board_is_throttled_briefly(self) -> None:
        assert not is_throttled(fill_after((95, ()), (5, HEAT)))

    def test_does_not_apply_within_the_first_seconds(self) -> None:
        assert not is_throttled(fill_after((5, HEAT)))
