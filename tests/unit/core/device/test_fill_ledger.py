"""Specification of the sums behind "under-filled": what is counted, once, and over which time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.device.fill import (
    Evidence,
    FillLedger,
    GpuFill,
    is_held_down,
    is_under_filled,
)
from gpumon.core.sample import ActivitySample, BusySample, GpuDetails, GpuSample
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


WINDOWS = 6
"""Utilisation samples in a second."""


def bursts(
    seconds: int, busy_windows: int, *, busy_watts: float, idle_watts: float
) -> Iterator[GpuSample]:
    """An A100 that works for so many of the windows of each second."""
    share = busy_windows / WINDOWS
    watts = share * busy_watts + (1 - share) * idle_watts
    for second in seconds_of(seconds, watts=watts):
        began_ns = second.busy[0].start_ns
        edges = [began_ns + s(1) * at // WINDOWS for at in range(WINDOWS + 1)]
        busy = tuple(
            BusySample(start_ns, end_ns, float(at < busy_windows))
            for at, (start_ns, end_ns) in enumerate(pairwise(edges))
        )
        details = GpuDetails(began_ns, 400.0, 1.98e9, throttle_reasons=())
        yield second._replace(busy=busy, details=details)


def ticks_of(
    is_busy: Callable[[float], bool],
    *,
    watts: tuple[float, float],
    seconds: int,
    tick_s: float = 1.0,
    behind_s: float = 0.0,
) -> Iterator[GpuSample]:
    """Ticks with windows of 0.2 s, each read ``behind_s`` later, and the mean draw since the last.

    ``watts`` are those at work and those in pauses.
    """
    first, step_s, windows = next(seconds_of(1)), 0.05, 0
    for tick in range(1, round(seconds / tick_s)):
        steps = range(round((tick - 1) * tick_s / step_s), round(tick * tick_s / step_s))
        draws = [watts[0] if is_busy((step + 0.5) * step_s) else watts[1] for step in steps]
        known = int((tick * tick_s - behind_s) / 0.2 + 1e-9)
        parts = [[is_busy(at * 0.2 + part * 0.05 + 0.02) for part in range(4)]
                 for at in range(windows, known)]  # fmt: skip
        busy = tuple(
            BusySample(s(BEGAN_S) + at * s(0.2), s(BEGAN_S) + (at + 1) * s(0.2), sum(part) / 4)
            for at, part in enumerate(parts, start=windows)
        )
        windows = max(windows, known)
        yield first._replace(busy=busy, power_watts=sum(draws) / len(draws))


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

    def test_counts_only_while_the_gpu_is_busy_by_its_own_word(self) -> None:
        assert sums_of(*seconds_of(20, sm_active=0.24, graphics=0.5)).sm_active.known_ns == 0
        assert sums_of(*seconds_of(20, sm_active=0.24, graphics=0.96)).sm_active.known_ns == s(20)

    def test_counts_only_while_utilisation_is_high_where_it_does_not_say_itself(self) -> None:
        assert reported(*seconds_of(20, busy=0.5, sm_active=0.24)) is None

    def test_does_not_count_a_stretch_with_utilisation_knows_too_little(self) -> None:
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
    """The newest tick counts once the next one shows that the GPU was still busy at its end."""

    def test_is_compared_with_its_limit_in_busy_time_at_full_clock(self) -> None:
        fill = sums_of(*seconds_of(20, watts=180.0))

        assert fill.evidence is Evidence.POWER
        assert fill.power_ns == s(19)
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

        assert fill.drawn_ns == s(19)
        assert fill.drawn_watts == 180.0

    def test_counts_where_someone_has_set_the_clock_and_it_is_full(self) -> None:
        reasons = ("applications_clocks_setting",)

        assert sums_of(*seconds_of(20, watts=180.0, reasons=reasons)).power_ns == s(19)

    def test_is_nothing_without_a_limit(self) -> None:
        bare = [
            sample._replace(details=GpuDetails(s(1), sm_clock_max_hertz=1.98e9))
            for sample in seconds_of(20, watts=180.0)
        ]

        assert sums_of(*bare).power_ns == 0

    @pytest.mark.parametrize("busy_windows", [6, 4, 3, 2])
    def test_of_bursts_calls_no_full_board_under_filled(self, busy_windows: int) -> None:
        """390 of 400 W while it works, 60 W in pauses; a tick has the mean of both."""
        ledger = FillLedger()
        for sample in bursts(300, busy_windows, busy_watts=390.0, idle_watts=60.0):
            ledger.observe(sample)
        fill = ledger.snapshot()

        assert fill is not None
        assert fill.power_watts == (390.0 if busy_windows == WINDOWS else None)
        assert not is_under_filled(fill)

    def test_of_a_burst_counts_in_the_ticks_that_it_fills(self) -> None:
        # Six seconds at work, half a second idle, and so on: at another place of each tick.
        fill = sums_of(*ticks_of(lambda at_s: at_s % 6.5 < 6.0, watts=(390.0, 60.0), seconds=390))

        assert fill.drawn_watts == pytest.approx(390.0)
        assert fill.power_ratio == pytest.approx(390 / 700)
        assert s(200) < fill.power_ns < s(300)

    @pytest.mark.parametrize("tick_s", [0.1, 0.25, 1.0, 3.0])
    def test_of_the_pause_after_a_burst_is_not_that_of_the_burst(self, tick_s: float) -> None:
        # Utilisation is known 0.15 s later than power: the last tick of a burst may hold a pause.
        samples = ticks_of(
            lambda at_s: at_s % 8.0 < 7.0, watts=(390.0, 60.0), seconds=240, tick_s=tick_s,
            behind_s=0.15,
        )  # fmt: skip

        assert sums_of(*samples).drawn_watts == pytest.approx(390.0)

    def test_of_time_that_is_partly_not_observed_does_not_count(self) -> None:
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
        fill = reported(*frames(found))

        for mean in fill[:4] if fill is not None else ():
            assert mean.ratio is None or 0.0 <= mean.ratio <= 1.0

    @given(stretches, st.randoms(use_true_random=False))
    def test_sums_do_not_depend_on_the_order_of_stretches(
        self, found: list[Stretch], order: random.Random
    ) -> None:
        mixed = list(found)
        order.shuffle(mixed)

        assert reported(*frames(found)) == reported(*frames(mixed))

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

        assert reported(*once) == reported(*more) == reported(*twice)

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
