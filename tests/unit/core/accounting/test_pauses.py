"""Specification of counting pauses: a blip does not split a pause."""

from __future__ import annotations

from typing import Final

import pytest

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause
from gpumon.core.verdict import VerdictName
from tests.builders.cycles import late_waves
from tests.builders.time import every, rhythm, s, settled

WORK, LONG = [1.0] * 30, [0.0] * 25


def counted(*stretches: list[float]) -> GpuTotals:
    return settled(every(1.0, [level for stretch in stretches for level in stretch]))


BLIPS: dict[str, tuple[list[list[float]], int]] = {
    "splits no pause": ([WORK, LONG, WORK, LONG, [0.8], LONG, WORK], 2),
    "may come again and again in one": (
        [WORK, WORK, LONG, [1.0], LONG, WORK, LONG, [1.0], LONG, [1.0], LONG, WORK], 2,
    ),
    "is no longer than a sample": ([WORK, LONG, [1.0, 1.0], LONG, WORK], 2),
    "has a long pause before it": ([WORK, [0.0] * 9, [1.0], LONG, WORK], 2),
    "has a long pause behind it": ([WORK, LONG, [1.0], [0.0] * 9, WORK], 2),
    "needs no longer one": ([WORK, LONG, [1.0], [0.0] * 10, WORK], 1),
    "is a burst where all are short": ([rhythm(1, 12, 40), [1.0]], 40),
    "is a burst where most are short": ([rhythm(4, 12, 20), [1.0], LONG, [1.0] * 4], 21),
    "is of its own job alone": ([WORK, LONG, WORK, [0.0] * 300, rhythm(1, 12, 10), [1.0]], 1 + 10),
}  # fmt: skip
"""Stretches, and the pauses between their bursts."""


class TestABlip:
    @pytest.mark.parametrize("what", BLIPS)
    def test_has_the_expected_pauses(self, what: str) -> None:
        stretches, pauses = BLIPS[what]

        assert counted(*stretches).pauses.count == pauses

    def test_leaves_all_time_to_the_pause_around_it_and_makes_no_pattern_of_two(self) -> None:
        totals = counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK)

        assert totals.pauses.longest_ns == s(50.2)
        assert totals.pauses.total_ns == totals.gaps.total_ns
        assert totals.suspected_ns == 0

    def test_splits_it_in_the_histogram(self) -> None:
        totals = counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK, LONG, WORK)

        assert (totals.pauses.count, totals.gaps.count) == (3, 4)
        assert totals.gaps.longest_ns == s(25.2)


class TestTheLastPauses:
    """Whatever their length, and however many there were: a reader looks them up in a log."""

    def began_s(self, *stretches: list[float]) -> list[float]:
        suspicion = counted(*stretches).suspicion
        assert suspicion is not None
        return [began_ns / s(1) for began_ns in suspicion.began_ns]

    @pytest.mark.parametrize("pauses", [3, 64, 65, 95, 96, 200])
    def test_are_the_last_three(self, pauses: int) -> None:
        began_s = self.began_s(rhythm(4, 2, pauses), [1.0])

        assert began_s == [6 * at + 4 for at in range(pauses - 3, pauses)]


class TestAPauseWithUnobservedTime:
    def test_is_shown_as_a_stretch_before_and_one_after(self) -> None:
        ledger, at_s = GpuLedger(), 0.0
        for busy, _ in late_waves(40):  # the second after the first of a pause is unknown
            ledger.observe(every(1.0, [1.0] * busy + [0.0], at_s))
            ledger.observe(every(1.0, [0.0] * 3, at_s + busy + 2))
            at_s += busy + 5
        ledger.observe(every(1.0, [1.0], at_s))

        totals = ledger.snapshot()

        assert totals.gaps.count == 40
        assert [(one.start_ns, one.end_ns) for one in totals.starved_intervals[:4]] == [
            (s(3), s(4)), (s(5), s(8)), (s(13), s(14)), (s(15), s(18)),
        ]  # fmt: skip


class TestALowLevel:
    """Three or more low samples, few of them below 0.1, are no pause."""

    LEVELS: Final = {
        "of three samples": ([[1.0] * 10, [0.2] * 3, [1.0] * 10], 0),
        "at the burst threshold": ([[1.0] * 10, [0.35] * 3, [1.0] * 10], 0),
        "at the low threshold": ([[1.0] * 10, [0.1] * 3, [1.0] * 10], 0),
        "of two samples is a pause": ([[1.0] * 10, [0.2] * 2, [1.0] * 10], 1),
        "with one sample below is a pause": (
            [[1.0] * 10, [0.2, 0.2, 0.09, 0.2], [1.0] * 10], 1,
        ),
        "with a sample below, of five, is none": (
            [[1.0] * 10, [0.29, 0.26, 0.35, 0.0, 0.29], [1.0] * 10], 0,
        ),
        "of a minute at 29 % with dips is none": (
            [[1.0] * 10, [0.29, 0.29, 0.0, 0.29, 0.31, 0.08, 0.29, 0.29] * 8, [1.0] * 10], 0,
        ),
        "at its ends only is a pause": ([[1.0] * 10, [0.3, 0.0, 0.3], [1.0] * 10], 1),
        "in the middle of a pause is a part of it": (
            [[1.0] * 10, [0.3, 0.0, 0.2, 0.0, 0.0, 0.3], [1.0] * 10], 1,
        ),
        "that comes and goes": ([[1.0] * 10, [0.25] * 5] * 20 + [[1.0]], 0),
        "beside pauses": ([[1.0] * 10, [0.25] * 5, [1.0] * 10, [0.0] * 3] * 4 + [[1.0]], 4),
    }  # fmt: skip

    @pytest.mark.parametrize("what", LEVELS)
    def test_has_the_expected_pauses_and_keeps_its_idle_time(self, what: str) -> None:
        stretches, pauses = self.LEVELS[what]
        ratios = [level for stretch in stretches for level in stretch]

        totals = counted(*stretches)

        idle_ns = sum(s(1) - round(s(1) * ratio) for ratio in ratios)
        assert (totals.pauses.count, totals.gaps.count) == (pauses, pauses)
        assert totals.idle_ns == {IdleCause.UNKNOWN: idle_ns}
        assert totals.busy_ns + idle_ns == totals.observed_ns == totals.in_use_ns

    def test_is_counted_and_makes_the_gpu_not_healthy_if_repeated(self) -> None:
        often = counted(*[[1.0] * 20, [0.25] * 10] * 5, [1.0])
        once = counted([1.0] * 60, [0.25] * 20, [1.0] * 60)

        assert (often.low_levels, once.low_levels) == (5, 1)
        assert diagnose(often).name is VerdictName.PARTIAL
        assert diagnose(once).name is VerdictName.HEALTHY

    def test_is_never_suspected(self) -> None:
        totals = counted(*[[1.0] * 10, [0.2] * 4] * 30, [1.0])

        assert totals.suspected_ns == 0
        assert totals.suspicion is None
        assert not totals.starved_intervals

    def test_is_a_pause_if_tags_explain_it(self) -> None:
        ledger = GpuLedger()
        waits = SharedIdle(idle_ns={IdleCause.INPUT_WAIT: s(0.8)}, resolved_ns=s(0.8))
        for sample in every(1.0, [1.0] * 5 + [0.2] * 4 + [1.0] * 5):
            ledger.observe_shared(sample, waits if sample.busy_ratio < 1 else SharedIdle({}))

        assert ledger.snapshot().gaps.count == 1
