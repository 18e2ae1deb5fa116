"""Specification of the sums behind low SM utilisation: which time counts, and only once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.device.sm_utilisation import (
    Evidence,
    FillLedger,
    GpuFill,
    are_clocks_reduced,
)
from gpumon.core.sample import ActivitySample, BusySample, GpuSample
from tests.builders.report import BEGAN_S, seconds_of
from tests.builders.time import s


def reported(*samples: GpuSample) -> GpuFill | None:
    ledger = FillLedger()
    for sample in samples:
        ledger.observe(sample)
    return ledger.snapshot()


def sums_of(*samples: GpuSample) -> GpuFill:
    fill = reported(*samples)
    assert fill is not None
    return fill


def ticks_of(
    is_busy: Callable[[float], bool],
    *,
    watts: tuple[float, float],
    seconds: int,
    tick_s: float = 1.0,
    behind_s: float = 0.0,
    mean_s: float | None = None,
) -> Iterator[GpuSample]:
    """Ticks with windows of 0.2 s, each read ``behind_s`` later, and the mean draw since the last.

    ``watts`` are those at work and those in pauses. ``mean_s``: the draw is a mean of that time.
    """
    first, step_s, windows = next(seconds_of(1)), 0.05, 0
    for tick in range(1, round(seconds / tick_s)):
        steps = range(round((tick - 1) * tick_s / step_s), round(tick * tick_s / step_s))
        draws = [watts[0] if is_busy((step + 0.5) * step_s) else watts[1] for step in steps]
        draws = draws[-round((mean_s or tick_s) / step_s) :]
        known = int((tick * tick_s - behind_s) / 0.2 + 1e-9)
        parts = [[is_busy(at * 0.2 + part * 0.05 + 0.02) for part in range(4)]
                 for at in range(windows, known)]  # fmt: skip
        busy = tuple(
            BusySample(s(BEGAN_S) + at * s(0.2), s(BEGAN_S) + (at + 1) * s(0.2), sum(part) / 4)
            for at, part in enumerate(parts, start=windows)
        )
        windows = max(windows, known)
        mean_ns = None if mean_s is None else s(mean_s)
        yield first._replace(busy=busy, power_watts=sum(draws) / len(draws), power_over_ns=mean_ns)


class TestActivity:
    def test_counts_each_stretch_once_however_often_it_is_reported(self) -> None:
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

    def test_counts_only_while_the_gpu_reports_itself_busy(self) -> None:
        assert sums_of(*seconds_of(20, sm_active=0.24, graphics=0.5)).sm_active.known_ns == 0
        assert sums_of(*seconds_of(20, sm_active=0.24, graphics=0.96)).sm_active.known_ns == s(20)

    def test_does_not_count_a_stretch_with_too_few_utilisation_samples(self) -> None:
        sample = next(seconds_of(1))
        stretch = ActivitySample(s(BEGAN_S - 4), s(BEGAN_S + 1), None, 0.24)

        assert sums_of(sample._replace(activity=stretch)).sm_active.known_ns == 0

    @pytest.mark.parametrize("nothing", [None, math.nan])
    def test_counts_for_nothing_without_an_answer(self, nothing: float | None) -> None:
        sample = next(seconds_of(1))._replace(
            activity=ActivitySample(s(1), s(6), 1.0, nothing, 0.5, 0.5, 0.5)
        )

        assert sums_of(sample).sm_active.known_ns == 0
        assert sums_of(sample).tensor_active.known_ns == 0


class TestPower:
    """The newest tick counts once the next one shows that the GPU was still busy at its end."""

    @pytest.mark.parametrize(
        ("clock", "reasons", "counts"),
        [
            (1.0, (), True),
            (1.0, ("applications_clocks_setting",), True),
            (1755 / 1980, (), False),
            (1.0, ("hw_thermal_slowdown",), False),
        ],
        ids=["full clock", "full clock as set", "low clock", "held down"],
    )
    def test_is_compared_with_its_limit_at_full_clock_and_drawn_at_any(
        self, clock: float, reasons: tuple[str, ...], counts: bool
    ) -> None:
        fill = sums_of(*seconds_of(90, watts=180.0, clock=clock, reasons=reasons))

        assert fill.power_ns == (s(89) if counts else 0)
        assert fill.power_ratio == (pytest.approx(180 / 700) if counts else None)
        assert fill.evidence is (Evidence.POWER if counts else None)
        assert (fill.drawn_ns, fill.drawn_watts) == (s(89), 180.0)
        assert fill.sm_clock.ratio == pytest.approx(clock)
        is_held = "hw_thermal_slowdown" in reasons
        assert fill.throttled_by_ns == ({"hw_thermal_slowdown": s(90)} if is_held else {})
        assert are_clocks_reduced(fill) is is_held

    def test_counts_in_the_ticks_that_a_burst_fills(self) -> None:
        # Six seconds at work, then half a second idle: bursts end at varying points of a tick.
        fill = sums_of(*ticks_of(lambda at_s: at_s % 6.5 < 6.0, watts=(390.0, 60.0), seconds=390))

        assert fill.drawn_watts == pytest.approx(390.0)
        assert fill.power_ratio == pytest.approx(390 / 700)
        assert s(200) < fill.power_ns < s(300)

    @pytest.mark.parametrize("tick_s", [0.1, 1.0, 3.0])
    def test_counts_none_of_the_pause_after_a_burst(self, tick_s: float) -> None:
        # Utilisation is known 0.15 s later than power: the last tick of a burst may hold a pause.
        samples = ticks_of(
            lambda at_s: at_s % 8.0 < 7.0, watts=(390.0, 60.0), seconds=240, tick_s=tick_s,
            behind_s=0.15,
        )  # fmt: skip

        assert sums_of(*samples).drawn_watts == pytest.approx(390.0)

    @pytest.mark.parametrize("tick_s", [1.0, 4.0, 5.0])
    def test_of_the_last_second_counts_in_bursts_that_are_shorter_than_a_tick(
        self, tick_s: float
    ) -> None:
        samples = ticks_of(
            lambda at_s: at_s % 4.3 < 3.3, watts=(390.0, 60.0), seconds=1200, tick_s=tick_s,
            behind_s=0.15, mean_s=1.0,
        )  # fmt: skip
        fill = sums_of(*samples)

        assert fill.drawn_watts == pytest.approx(390.0)
        assert fill.power_ns > s(200)

    def test_does_not_count_in_partly_observed_time(self) -> None:
        samples = [*seconds_of(40, watts=180.0)]
        with_holes = [sample for at, sample in enumerate(samples) if at % 4]

        # Of three ticks in a row, the first spans a hole and the last is before one.
        assert sums_of(*with_holes).drawn_ns == s(11)


class TestAnIdleGpu:
    @pytest.mark.parametrize("busy", [0.0, 0.05, 0.9])
    def test_adds_nothing_at_all(self, busy: float) -> None:
        assert reported(*seconds_of(200, busy=busy, watts=70.0, sm_active=0.0)) is None


class TestNow:
    def ledger(self, *samples: GpuSample) -> FillLedger:
        ledger = FillLedger()
        for sample in samples:
            ledger.observe(sample)
            ledger.is_under_filled_now(sample.busy[-1].end_ns)
        return ledger

    def now(self, ledger: FillLedger, at_s: float) -> bool:
        return ledger.is_under_filled_now(s(BEGAN_S + at_s))

    def test_is_low_after_a_minute_of_it_until_the_gpu_has_stopped(self) -> None:
        short = self.ledger(*seconds_of(55, sm_active=0.24))
        long = self.ledger(*seconds_of(65, sm_active=0.24))

        assert not self.now(short, 55.0)
        assert self.now(long, 65.0)
        assert not self.now(long, 165.0)

    def test_forgets_what_was_more_than_two_minutes_of_busy_time_ago(self) -> None:
        before = seconds_of(600, sm_active=0.24)
        after = seconds_of(200, sm_active=0.95, from_s=600.0)
        ledger = self.ledger(*before, *after)

        assert not self.now(ledger, 800.0)


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
    @given(stretches, st.integers(0, 12))
    def test_a_gap_leaves_out_what_was_in_it_and_nothing_else(
        self, found: list[Stretch], cut: int
    ) -> None:
        once = frames(found)
        whole, first, second = (
            reported(*part) or GpuFill() for part in (once, once[:cut], once[cut:])
        )

        for mean, left, right in zip(whole[:4], first[:4], second[:4], strict=True):
            assert mean.known_ns == left.known_ns + right.known_ns
            assert mean.weighted_ns == left.weighted_ns + right.weighted_ns
