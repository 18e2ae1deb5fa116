"""Specification of the verdicts, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample
from gpumon.core.verdict import LikelyCause, Pattern, Severity, Verdict, VerdictName
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.time import every, rhythm, settled

WAIT, SAVE, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.UNKNOWN
BREAK = [1.0] * 50 + [0.0] * 20 + [1.0] * 50


def verdict(ratios: Sequence[float]) -> Verdict:
    return diagnose(settled(every(1.0, ratios)))


def tagged(ratios: Sequence[float], cause: IdleCause, explained: float = 1.0) -> Verdict:
    """The verdict on samples; a phase explains a share of their idle time."""
    ledger = GpuLedger()
    for sample in every(1.0, ratios):
        idle_ns = sample.end_ns - sample.start_ns
        idle_ns -= round(idle_ns * sample.busy_ratio)
        ledger.observe_shared(sample, SharedIdle({cause: int(idle_ns * explained)}))
    ledger.end_job()
    return diagnose(ledger.snapshot())


class TestUseThatIsTooShort:
    @pytest.mark.parametrize(
        ("ratios", "name", "pattern"),
        [
            ([], VerdictName.NOT_IN_USE, Pattern.UNUSED),
            ([0.0] * 100, VerdictName.NOT_IN_USE, Pattern.UNUSED),
            ([1.0] * 9 + [0.0] * 81, VerdictName.NOT_IN_USE, Pattern.UNUSED),
            ([1.0] * 9 + [0.0] * 80, VerdictName.TOO_SHORT_TO_JUDGE, Pattern.BUSY),
            ([1.0] * 9, VerdictName.TOO_SHORT_TO_JUDGE, Pattern.BUSY),
            ([1.0], VerdictName.TOO_SHORT_TO_JUDGE, Pattern.BUSY),
        ],
        ids=["nothing", "no use", "a tenth", "just more than a tenth", "all of it", "a second"],
    )
    def test_is_none_if_it_is_at_most_a_tenth_of_the_time(
        self, ratios: list[float], name: VerdictName, pattern: Pattern
    ) -> None:
        found = verdict(ratios)

        assert (found.name, found.pattern) == (name, pattern)
        assert found.severity is Severity.NONE


class TestAVerdictWithoutTags:
    @pytest.mark.parametrize(
        ("ratios", "name", "pattern", "starved"),
        [
            ([1.0] * 20, VerdictName.HEALTHY, Pattern.BUSY, 0),
            ([0.96] * 60, VerdictName.HEALTHY, Pattern.BUSY, 0),
            (BREAK, VerdictName.HEALTHY, None, 0),
            (on_and_off(late_waves(30)), VerdictName.STARVATION_SUSPECTED, Pattern.BURSTY,
             90 / 251),
            ([*rhythm(4, 2, 30), *[1.0] * 4], VerdictName.PARTIAL, Pattern.BURSTY, 0),
            ([*rhythm(2, 8, 2), 1.0], VerdictName.PARTIAL, None, 0),
            ([0.5] * 60, VerdictName.PARTIAL, Pattern.PARTIAL, 0),
        ],
        ids=["busy", "a loss below five percent", "one break", "pauses after bursts that vary",
             "pauses after equal bursts", "two pauses",
             "a flat level"],
    )  # fmt: skip
    def test_is_by_how_much_is_lost_and_in_what_pattern(
        self, ratios: list[float], name: VerdictName, pattern: Pattern | None, starved: float
    ) -> None:
        found = verdict(ratios)

        assert found.name is name
        assert pattern in (found.pattern, None)
        assert found.starved_ratio == pytest.approx(starved)


class TestAVerdictThatTagsProve:
    @pytest.mark.parametrize(
        ("found", "name", "cause", "severity"),
        [
            (tagged([0.5] * 60, WAIT), VerdictName.STARVED, WAIT, Severity.HIGH),
            (
                tagged([0.85] * 60, IdleCause.VALIDATION),
                VerdictName.STALLED,
                IdleCause.VALIDATION,
                Severity.MODERATE,
            ),
            (tagged(BREAK, SAVE), VerdictName.STALLED, SAVE, None),
            (tagged([*rhythm(4, 2, 6), *[1.0] * 4], SAVE), VerdictName.STALLED, SAVE, None),
        ],
        ids=["input", "something else", "one long checkpoint", "a rhythm of checkpoints"],
    )
    def test_is_by_the_cause(
        self, found: Verdict, name: VerdictName, cause: IdleCause, severity: Severity | None
    ) -> None:
        assert (found.name, found.main_cause) == (name, cause)
        assert severity in (found.severity, None)

    @pytest.mark.parametrize("explained", [1.0, 0.7, 0.3])
    def test_is_starved_however_much_nothing_explains(self, explained: float) -> None:
        """What is unknown is in use, too: no second of it can make the proved share smaller."""
        found = tagged([0.5] * 60, WAIT, explained=explained)

        assert found.coverage_ratio == pytest.approx(0.5 + explained / 2)
        assert found.starved_ratio == pytest.approx(explained / 2)
        assert found.name is VerdictName.STARVED
        assert found.main_cause is (WAIT if explained > 0.5 else UNKNOWN)


class TestALossInFewPauses:
    """Fewer than ten prove nothing: they may be checkpoints, or the work of another user."""

    SIX = (*rhythm(60, 30, 6), *[1.0] * 30)
    TWO_AND_A_BLIP = (*rhythm(20, 25, 2), 1.0, *[0.0] * 25, *[1.0] * 20)

    @pytest.mark.parametrize(
        ("pauses", "severity"),
        [(6, Severity.MODERATE), (9, Severity.MODERATE), (10, Severity.HIGH)],
    )
    def test_is_moderate_however_much_is_lost_up_to_the_tenth(
        self, pauses: int, severity: Severity
    ) -> None:
        found = verdict([*rhythm(60, 30, pauses), *[1.0] * 30])

        assert found.name in (VerdictName.PARTIAL, VerdictName.STARVATION_SUSPECTED)
        assert found.lost_ratio == pytest.approx(30 * pauses / (90 * pauses + 30))
        assert found.severity is severity

    def test_is_not_a_pattern_if_a_blip_splits_one_of_two(self) -> None:
        found = verdict(self.TWO_AND_A_BLIP)

        assert found.lost_ratio == pytest.approx(75 / 136)
        assert (found.name, found.severity) == (VerdictName.PARTIAL, Severity.MODERATE)
        assert found.starved_ratio == 0.0

    def test_is_high_where_tags_prove_it(self) -> None:
        assert tagged(self.SIX, WAIT).severity is Severity.HIGH
        assert tagged(self.SIX, SAVE).severity is Severity.HIGH

    def test_is_high_where_most_of_it_is_a_level(self) -> None:
        found = verdict([*[0.5] * 300, *[0.0] * 20, *[0.5] * 300])

        assert (found.name, found.severity) == (VerdictName.PARTIAL, Severity.HIGH)

    def test_has_no_probability_where_there_are_fewer_than_three(self) -> None:
        found = verdict([*[1.0] * 30, *[0.0] * 20, *[1.0] * 30, *[0.0] * 20, *[1.0] * 30])

        assert (found.input_probability, found.likely_causes) == (None, None)

    @pytest.mark.parametrize(
        ("probability", "name"),
        [(0.49, VerdictName.PARTIAL), (0.5, VerdictName.STARVATION_SUSPECTED)],
    )
    def test_is_suspected_where_late_input_is_likelier_than_not(
        self, probability: float, name: VerdictName
    ) -> None:
        samples = every(1.0, [*[1.0] * 5, *[0.0] * 5] * 20)
        totals = settled(samples)
        totals = totals._replace(
            suspected_ns=totals.gaps.total_ns,
            suspicion=Suspicion(probability, (LikelyCause.LATE_INPUT,)),
        )

        assert diagnose(totals).name is name
        assert diagnose(totals).input_probability == probability


class TestNoFiguresAreMadeUp:
    def test_without_any_use_there_is_no_ratio(self) -> None:
        found = diagnose(GpuTotals())

        assert (found.lost_ratio, found.coverage_ratio) == (None, None)

    def test_a_starved_share_never_exceeds_one(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        for sample in every(1.0, [0.0] * 200, start_s=1.0):
            waits = SharedIdle({WAIT: sample.end_ns - sample.start_ns})
            ledger.observe_shared(BusySample(*sample), waits)

        assert diagnose(ledger.snapshot()).starved_ratio == pytest.approx(200 / 201)
