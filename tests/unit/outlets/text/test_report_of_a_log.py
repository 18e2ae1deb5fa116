"""Specification of what a log shows besides verdicts: which findings, and each of them once.

Their text is in ``tests/golden``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.diagnosis.log_findings import log_findings
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report, sampling_of
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import levels_lines
from tests.builders.report import gpu, report, with_totals
from tests.builders.time import s
from tests.unit.outlets.report_lines import PLAIN, shown

UNKNOWN, NOT_IN_USE = IdleCause.UNKNOWN, IdleCause.NOT_IN_USE
HEALTHY = gpu(7_200)
SUSPECTED = gpu(30, {UNKNOWN: 30}, suspected_s=30, pauses=20)


def found(one: Report) -> list[tuple[str, tuple[str, ...]]]:
    """The rules that apply, and their GPUs."""
    return [(finding.rule, finding.gpus) for finding in log_findings(one)]


def sampled_every(period_s: float, one: GpuReport) -> Report:
    return replace(report(one), period_ns=s(period_s), sampling=sampling_of(s(period_s)))


class TestAFinding:
    @pytest.mark.parametrize(
        ("paused_s", "by_chance_s", "is_reported"), [(720, 0, True), (410, 400, False)]
    )
    def test_that_gpus_pause_together_is_none_where_it_is_chance(
        self, paused_s: float, by_chance_s: float, is_reported: bool
    ) -> None:
        joined = Together(
            in_use_ns=s(3_600), all_paused_ns=s(paused_s), all_pauses=30, in_use_gpu_ns=s(7_200),
            paused_gpu_ns=s(2_400), by_chance_ns=s(by_chance_s), in_use=(0, 1),
            idle_beside_peer_ns=(0, 0),
        )  # fmt: skip
        one = replace(report(gpu(60), gpu(60, index=1)), together=joined)

        assert found(one) == [("all_pause_together", ("0", "1"))] * is_reported

    @pytest.mark.parametrize(("held_s", "is_reported"), [(7_560, True), (120, False)])
    def test_that_memory_is_held_is_none_for_minutes(
        self, held_s: float, is_reported: bool
    ) -> None:
        held = replace(HEALTHY, held_memory=HeldMemory(s(held_s), s(held_s), 73 << 30))

        assert found(report(held)) == [("memory_held", ("0",))] * is_reported

    @pytest.mark.parametrize(
        ("period_s", "is_reported"), [(0.1, False), (1, False), (4.9, False), (5, True), (60, True)]
    )
    def test_that_samples_are_far_apart_is_none_where_they_are_not(
        self, period_s: float, is_reported: bool
    ) -> None:
        assert (
            found(sampled_every(period_s, HEALTHY)) == [("sampling_too_coarse", ())] * is_reported
        )

    def test_stands_in_one_place_of_a_report(self) -> None:
        coarse = sampled_every(5, SUSPECTED)
        (finding,) = log_findings(coarse)

        text = " ".join(" ".join(shown(coarse, PLAIN)).split())

        assert text.count(finding.text) == text.count(finding.remedy) == 1


class TestHowOftenItPauses:
    @pytest.mark.parametrize(
        ("period_s", "interval"),
        [
            (1, "one every 18 s"), (2, "about one every 18 s"), (5, "about one every 20 s"),
            (10, "about one every 20 s"), (60, "about one every 60 s"),
        ],
    )  # fmt: skip
    def test_is_no_more_precise_than_its_samples(self, period_s: float, interval: str) -> None:
        seldom = with_totals(gpu(300, {UNKNOWN: 90}, pauses=20), cycle_ns=s(18.4))
        sampled = sampled_every(period_s, seldom)

        assert f" pauses{' of 4.5 s' * (period_s < 5)}, {interval}." in verdict_line(sampled)
        assert period_s > 1 or "They come every 18 s, like clockwork." in why_line(sampled)


class TestTheLengthOfAPause:
    @pytest.mark.parametrize(("longest_s", "is_reported"), [(9, False), (10, True)])
    def test_is_not_printed_where_so_few_samples_cannot_show_it(
        self, longest_s: float, is_reported: bool
    ) -> None:
        pauses = replace(SUSPECTED.totals.pauses, p50_ns=s(5), longest_ns=s(longest_s))
        one = sampled_every(5, with_totals(SUSPECTED, pauses=pauses))

        levels = " ".join(levels_lines(one.gpus[0], one.sampling))

        assert (f"longest {longest_s:g} s" in why_line(one)) is is_reported
        assert (f"longest {longest_s:g} s" in levels) is is_reported

    def test_has_no_levels_on_a_gpu_that_was_not_used(self) -> None:
        assert levels_lines(gpu(0, {NOT_IN_USE: 60}), sampling_of(s(1))) == []
