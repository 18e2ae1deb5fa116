"""Specification of the sums behind "under-filled": what is counted, once, and over which time."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.board.fill import Evidence, FillLedger, GpuFill, is_held_down
from gpumon.core.sample import ActivitySample, BusySample, GpuDetails, GpuSample
from tests.builders_fill import BEGAN_S, seconds_of
from tests.builders_time import s


def told(*samples: GpuSample) -> GpuFill | None:
    ledger = FillLedger()
    for sample in samples:
        ledger.observe(sample)
    return ledger.snapshot()


def sums_of(*samples: GpuSample) -> GpuFill:
    fill = told(*samples)
    assert fill is not None
    return fill


class TestActivity:
    def test_counts_each_stretch_once_however_often_it_is_told(self) -> None:
        fill = sums_of(*seconds_of(20, sm_active=0.24))

        assert fill.sm_active.known_ns == s(20)
        assert fill.sm_active.ratio == pytest.approx(0.24)
        assert fill.sm_occupancy.ratio == pytest.approx(0.12)
        assert fill.memory_bandwidth.ratio is None
        assert fill.evidence is Evidence.GPM
        assert fill.observed_ns == s(20)

    def test_counts_once_what_two_stretches_share(self) -> None:
        device = next(seconds_of(1)).device
        overlapping = [
            GpuSample(device, activity=ActivitySample(s(start), s(start + 10), 1.0, 0.5))
            for start in (0, 5, 5, 2)
        ]

        assert sums_of(*overlapping).sm_active.known_ns == s(15)

    def test_counts_only_while_the_gpu_is_busy_by_its_own_word(self) -> None:
        assert sums_of(*seconds_of(20, sm_active=0.24, graphics=0.5)).sm_active.known_ns == 0
        assert sums_of(*seconds_of(20, sm_active=0.24, graphics=0.96)).sm_active.known_ns == s(20)

    def test_counts_only_while_utilisation_is_high_where_it_does_not_say_itself(self) -> None:
        assert told(*seconds_of(20, busy=0.5, sm_active=0.24)) is None

    def test_does_not_count_a_stretch_of_which_utilisation_knows_too_little(self) -> None:
        sample = next(seconds_of(1))
        stretch = ActivitySample(s(BEGAN_S - 4), s(BEGAN_S + 1), None, 0.24)

        assert sums_of(sample._replace(activity=stretch)).sm_active.known_ns == 0

    @pytest.mark.parametrize("nothing", [None, math.nan])
    def test_without_an_answer_counts_for_nothing(self, nothing: float | None) -> None:
        sample = next(seconds_of(1))._replace(
            activity=ActivitySample(s(1), s(6), 1.0, nothing, 0.5, 0.5, 0.5)
        )

        assert sums_of(sample).sm_active.known_ns == 0
        assert sums_of(sample).tensor_active.known_ns == 0


class TestPower:
    def test_is_held_against_its_limit_in_busy_time_at_full_clock(self) -> None:
        fill = sums_of(*seconds_of(20, watts=180.0))

        assert fill.evidence is Evidence.POWER
        assert fill.power_ns == s(20)
        assert fill.power_ratio == pytest.approx(180 / 700)
        assert fill.sm_clock.ratio == 1.0

    @pytest.mark.parametrize("clock", [0.6, 1755 / 1980])
    def test_does_not_count_where_the_clock_is_low(self, clock: float) -> None:
        fill = sums_of(*seconds_of(20, watts=180.0, clock=clock))

        assert fill.power_ns == 0
        assert fill.evidence is None
        assert fill.sm_clock.ratio == pytest.approx(clock)

    def test_does_not_count_while_something_holds_the_clock_down(self) -> None:
        fill = sums_of(*seconds_of(90, watts=180.0, reasons=("hw_thermal_slowdown",)))

        assert fill.power_ns == 0
        assert fill.held_ratio == 1.0
        assert fill.held_by_ns == {"hw_thermal_slowdown": s(90)}
        assert is_held_down(fill)

    @pytest.mark.parametrize("clock", [0.6, 1.0])
    @pytest.mark.parametrize("reasons", [(), ("hw_thermal_slowdown",)], ids=str)
    def test_that_is_drawn_counts_at_any_clock(
        self, clock: float, reasons: tuple[str, ...]
    ) -> None:
        fill = sums_of(*seconds_of(20, watts=180.0, clock=clock, reasons=reasons))

        assert fill.drawn_ns == s(20)
        assert fill.drawn_watts == 180.0

    def test_counts_where_somebody_has_set_the_clock_and_it_is_full(self) -> None:
        reasons = ("applications_clocks_setting",)

        assert sums_of(*seconds_of(20, watts=180.0, reasons=reasons)).power_ns == s(20)

    def test_is_nothing_without_a_limit(self) -> None:
        bare = [
            sample._replace(details=GpuDetails(s(1), sm_clock_max_hertz=1.98e9))
            for sample in seconds_of(20, watts=180.0)
        ]

        assert sums_of(*bare).power_ns == 0


class TestAnIdleGpu:
    @pytest.mark.parametrize("busy", [0.0, 0.05, 0.9])
    def test_adds_nothing_at_all(self, busy: float) -> None:
        assert told(*seconds_of(200, busy=busy, watts=70.0, sm_active=0.0)) is None


class TestNow:
    def ledger(self, *samples: GpuSample) -> FillLedger:
        ledger = FillLedger()
        for sample in samples:
            ledger.observe(sample)
            ledger.is_under_filled_now(sample.busy[-1].end_ns)
        return ledger

    def now(self, ledger: FillLedger, at_s: float) -> bool:
        return ledger.is_under_filled_now(s(BEGAN_S + at_s))

    def test_is_under_filled_after_a_minute_of_it(self) -> None:
        short = self.ledger(*seconds_of(55, sm_active=0.24))
        long = self.ledger(*seconds_of(65, sm_active=0.24))

        assert not self.now(short, 55.0)
        assert self.now(long, 65.0)

    def test_forgets_what_was_more_than_two_minutes_of_busy_time_ago(self) -> None:
        before = seconds_of(600, sm_active=0.24)
        after = seconds_of(200, sm_active=0.95, from_s=600.0)
        ledger = self.ledger(*before, *after)

        assert not self.now(ledger, 800.0)

    def test_is_not_what_a_gpu_does_that_has_stopped(self) -> None:
        ledger = self.ledger(*seconds_of(100, sm_active=0.24))

        assert self.now(ledger, 100.0)
        assert not self.now(ledger, 200.0)


Stretch = tuple[int, float | None, float | None, float | None, float | None]
"""Seconds, and what was active in them."""

ratios = st.one_of(st.none(), st.floats(0.0, 1.0))
stretches = st.lists(st.tuples(st.integers(1, 10), ratios, ratios, ratios, ratios), max_size=12)


def frames(found: list[Stretch]) -> list[GpuSample]:
    """One frame for each stretch, each stretch right behind the one before."""
    device, at_s, made = next(seconds_of(1)).device, 0, []
    for length_s, *values in found:
        activity = ActivitySample(s(at_s), s(at_s + length_s), 0.97, *values)
        at_s += length_s
        busy = BusySample(activity.start_ns, activity.end_ns, 0.97)
        made.append(GpuSample(device, busy=(busy,), activity=activity))
    return made


class TestLaws:
    @given(stretches)
    def test_ratios_lie_within_0_and_1(self, found: list[Stretch]) -> None:
        fill = told(*frames(found))

        for mean in fill[:4] if fill is not None else ():
            assert mean.ratio is None or 0.0 <= mean.ratio <= 1.0

    @given(stretches, st.randoms(use_true_random=False))
    def test_sums_do_not_depend_on_the_order_of_stretches(
        self, found: list[Stretch], order: random.Random
    ) -> None:
        mixed = list(found)
        order.shuffle(mixed)

        assert told(*frames(found)) == told(*frames(mixed))

    @given(stretches, st.integers(0, 3))
    def test_repeats_and_frames_that_say_nothing_change_no_sum(
        self, found: list[Stretch], repeats: int
    ) -> None:
        once = frames(found)
        silent = GpuSample(next(seconds_of(1)).device, error="lost")
        more = [one for frame in once for one in (silent, *[frame] * (1 + repeats), silent)]
        twice = [
            one
            for frame in once
            for one in (frame, frame._replace(activity=ActivitySample(*frame.activity or ())))
        ]

        assert told(*once) == told(*more) == told(*twice)

    @given(stretches, st.integers(0, 12))
    def test_a_gap_leaves_out_what_was_in_it_and_nothing_else(
        self, found: list[Stretch], cut: int
    ) -> None:
        once = frames(found)
        whole, first, second = (told(*part) or GpuFill() for part in (once, once[:cut], once[cut:]))

        for mean, left, right in zip(whole[:4], first[:4], second[:4], strict=True):
            assert mean.known_ns == left.known_ns + right.known_ns
            assert mean.weighted_ns == left.weighted_ns + right.weighted_ns
