"""Specification of the rhythm: what a training has, and cells and requests of people lack."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import fmean, pstdev

import pytest
from hypothesis import given

from gpumon.core.judge.verdict_rules import judge
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.time.ledger import GpuLedger
from gpumon.core.time.pauses import Rhythm
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import VerdictName
from tests.builders_cycles import cycles, on_and_off, waits_of_a_person
from tests.builders_time import every, s, settled

MOSTLY_IDLE, MOSTLY_BUSY = 0.2, 0.8


def rhythm_of(cycles_s: Iterable[float]) -> Rhythm:
    rhythm = Rhythm(DEFAULT_SETTINGS)
    for cycle_s in cycles_s:
        rhythm.add(s(cycle_s))
    return rhythm


class TestTheVariation:
    def test_of_cycles_of_one_length_is_nothing(self) -> None:
        assert rhythm_of([7.0] * 20).variation == pytest.approx(0.0)

    def test_is_the_standard_deviation_over_the_mean(self) -> None:
        cycles_s = waits_of_a_person(DEFAULT_SETTINGS.rhythm_cycles)

        expected = pstdev(cycles_s) / fmean(cycles_s)
        assert rhythm_of(cycles_s).variation == pytest.approx(expected)

    def test_before_the_second_cycle_is_nothing(self) -> None:
        assert rhythm_of([]).variation == rhythm_of([5.0]).variation == 0.0

    def test_forgets_what_was_long_ago(self) -> None:
        began_wildly = waits_of_a_person(50) + [7.0] * 20 * DEFAULT_SETTINGS.rhythm_cycles

        assert rhythm_of(began_wildly).variation < 0.01


class TestARhythm:
    def test_is_lacking_where_requests_come_at_random(self) -> None:
        assert rhythm_of(waits_of_a_person(60)).is_lacking(MOSTLY_IDLE)

    def test_is_not_lacking_in_a_training_that_waits_for_its_loader(self) -> None:
        draws = random.Random(7)
        waves = [draws.gauss(8.0, 2.0) for _ in range(60)]

        assert not rhythm_of(waves).is_lacking(MOSTLY_IDLE)

    def test_is_not_held_to_be_lacking_where_the_device_is_mostly_busy(self) -> None:
        assert not rhythm_of(waits_of_a_person(60)).is_lacking(MOSTLY_BUSY)

    def test_is_not_held_to_be_lacking_before_there_are_enough_cycles(self) -> None:
        enough = DEFAULT_SETTINGS.min_cycles
        cycles_s = ([1.0, 90.0] * enough)[:enough]

        assert not rhythm_of(cycles_s[:-1]).is_lacking(MOSTLY_IDLE)
        assert rhythm_of(cycles_s).is_lacking(MOSTLY_IDLE)


class TestANewJob:
    def test_soon_has_a_rhythm_of_its_own(self) -> None:
        before, few = [1.0] * DEFAULT_SETTINGS.rhythm_cycles, [1.0] * DEFAULT_SETTINGS.min_cycles
        rhythm = rhythm_of(before)

        rhythm.begin_job()
        rhythm.add(s(100.0))

        assert rhythm.variation == pytest.approx(rhythm_of([*few, 100.0]).variation)

    def test_with_few_cycles_before_it_has_no_more_of_them(self) -> None:
        rhythm = rhythm_of([1.0])

        rhythm.begin_job()
        rhythm.add(s(100.0))

        assert rhythm.variation == pytest.approx(rhythm_of([1.0, 100.0]).variation)


def totals_of(cycles_s: Iterable[tuple[int, int]]) -> GpuTotals:
    """A GPU that works and pauses for so many whole seconds in turn."""
    ledger = GpuLedger()
    for sample in every(1.0, on_and_off(cycles_s)):
        ledger.observe([sample])
    return ledger.snapshot()


class TestAGpuWithoutARhythm:
    def test_is_partly_busy_and_not_suspected_of_starving(self) -> None:
        totals = totals_of((2, round(wait_s)) for wait_s in waits_of_a_person(150))

        assert judge(totals).name is VerdictName.PARTIAL
        assert totals.irregular_ns > totals.suspected_ns

    def test_is_no_longer_starved_now_once_that_is_known(self) -> None:
        waits_s = [round(wait_s) for wait_s in waits_of_a_person(120)]

        at_first, later = (totals_of((2, wait_s) for wait_s in waits_s[:n]) for n in (8, 120))

        assert at_first.starved_now
        assert not later.starved_now

    def test_is_suspected_all_the_same_where_most_of_its_pauses_had_one(self) -> None:
        waits = [8.0] * 200 + waits_of_a_person(40)

        totals = totals_of((4, round(wait_s)) for wait_s in waits)

        assert judge(totals).name is VerdictName.STARVATION_SUSPECTED

    def test_has_each_idle_second_of_its_pauses_either_suspected_or_irregular(self) -> None:
        totals = totals_of((2, round(wait_s)) for wait_s in waits_of_a_person(150))

        assert totals.suspected_ns + totals.irregular_ns == totals.gaps.total_ns

    @given(cycles())
    def test_is_starved_in_the_stretches_that_are_suspected_and_no_others(
        self, some: list[tuple[int, int]]
    ) -> None:
        totals = settled(every(1.0, on_and_off(some)))

        lengths_ns = (end_ns - start_ns for start_ns, end_ns in totals.starved_intervals)
        assert sum(lengths_ns) == totals.suspected_ns
        assert totals.suspected_ns + totals.irregular_ns <= totals.gaps.total_ns
