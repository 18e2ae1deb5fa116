"""Counters beside gauges: each reading counts for the time since the one before."""

from __future__ import annotations

import pytest

from gpumon.core.device.board_counters import ACTIVITIES, TRANSFERS, BoardCounters, BoardLedger
from gpumon.core.sample import ActivitySample, Device, GpuDetails, GpuSample
from tests.builders.time import s

GPU = Device(uuid="GPU-0", index=0)


def summed(*samples: GpuSample) -> BoardCounters:
    ledger = BoardLedger()
    for sample in samples:
        ledger.observe(sample)
    return ledger.counters


def read(at_s: float, *reasons: str, **rates: float) -> GpuSample:
    details = GpuDetails(s(at_s), throttle_reasons=reasons, **rates)  # type: ignore[arg-type]
    return GpuSample(device=GPU, details=details)


def active(start_s: float, end_s: float, ratio: float | None) -> GpuSample:
    ratios = {f"{name}_ratio": ratio for name in ACTIVITIES}
    return GpuSample(device=GPU, activity=ActivitySample(s(start_s), s(end_s), **ratios))


class TestTimeWithReducedClocks:
    def test_counts_whole_between_two_readings_and_half_at_its_ends(self) -> None:
        held = summed(read(0), read(4, "sw_power_cap"), read(8, "sw_power_cap"), read(12))

        assert held.throttled_ns == {"sw_power_cap": s(2 + 4 + 2)}

    def test_counts_each_reason(self) -> None:
        held = summed(read(0, "a", "b"), read(4, "a"))

        assert held.throttled_ns == {"a": s(4), "b": s(2)}

    def test_is_unknown_across_a_hole(self) -> None:
        assert summed(read(0, "a"), read(91, "a")).throttled_ns == {}

    def test_a_repeated_reading_changes_nothing(self) -> None:
        first, second = read(0, "a"), read(4, "a")

        assert summed(first, second, second, second).throttled_ns == {"a": s(4)}


class TestBytes:
    @pytest.mark.parametrize("name", TRANSFERS)
    def test_are_the_rate_times_the_time_since_the_reading_before(self, name: str) -> None:
        rate = {f"{name}_bytes_per_second": 1e9}

        counted = summed(read(0, **rate), read(4, **rate), read(6, **rate)).transferred_bytes

        assert counted == {name: 6_000_000_000}

    def test_of_a_link_that_is_not_read_have_no_count(self) -> None:
        assert summed(read(0), read(4)).transferred_bytes == {}


class TestActivity:
    def test_is_the_integral_over_the_stretches(self) -> None:
        counted = summed(active(0, 15, 0.5), active(15, 30, 1.0)).activity_ns

        assert counted == dict.fromkeys(ACTIVITIES, s(22.5))

    def test_a_stretch_that_comes_again_counts_once(self) -> None:
        assert summed(*[active(0, 15, 0.5)] * 3).activity_ns["sm_active"] == s(7.5)

    def test_that_is_unknown_counts_nothing(self) -> None:
        assert summed(active(0, 15, None)).activity_ns == {}
