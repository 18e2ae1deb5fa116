"""Specification of the rules: each names what it reads, and every threshold has a reader."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.device.sm_utilisation import NO_FILL, Mean
from gpumon.core.diagnosis.rules import ALL_RULES, BESIDE_RULES
from gpumon.core.diagnosis.verdict_rules import VERDICT_RULES, diagnose
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import IdleCause
from gpumon.core.report.job_balance import JobBalance
from gpumon.core.report.report import GpuReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.settings.rule import Rule, RuleKind
from gpumon.core.settings.threshold import thresholds_of
from gpumon.core.verdict import LikelyCause, VerdictName
from gpumon.core.waits.wait_rules import REASON_RULES
from tests.builders.report import NAP, evidence, gil_threads, gpm_fill, power_fill, task
from tests.builders.time import s

ROOT = Path(__file__).resolve().parents[4]
NAMES = frozenset(one.name for one in thresholds_of(DEFAULT_SETTINGS))


class Asked:
    """Settings that record which thresholds are read."""

    def __init__(self, settings: object, names: set[str], group: str = "") -> None:
        self._settings, self._names, self._group = settings, names, group

    def __getattr__(self, field: str) -> Any:
        value = getattr(self._settings, field)
        if is_dataclass(value):
            return Asked(value, self._names, f"{self._group}{field}.")
        self._names.add(f"{self._group}{field}")
        return value


def used(busy_s: float, idle_s: dict[IdleCause, float], **more: Any) -> GpuTotals:
    """A GPU in use all the time, most of its busy time at work in full."""
    in_use_ns = s(busy_s + sum(idle_s.values()))
    idle_ns = {cause: s(seconds) for cause, seconds in idle_s.items()}
    return GpuTotals(in_use_ns=in_use_ns, in_use_busy_ns=s(busy_s), idle_ns=idle_ns, **more)


PAUSED = GapTotals(count=9, total_ns=s(20), p50_ns=s(2))
LOSES_UNPROVED = used(80, {IdleCause.UNKNOWN: 20}, high_ns=s(80))
PAUSES = used(80, {IdleCause.UNKNOWN: 20}, suspected_ns=s(20), pauses=PAUSED)
STARVES = used(80, {IdleCause.INPUT_WAIT: 20})
SUSPECTED = PAUSES._replace(suspicion=Suspicion(0.8, (LikelyCause.LATE_INPUT,)))
TOTALS = (LOSES_UNPROVED, SUSPECTED, STARVES)
EVEN = JobBalance(busy_ratios={"GPU-0": 0.5, "GPU-1": 1.0}, shares=None, has_reported_shares=False)
HELD_LOW = gpm_fill(0.9, held=0.6)._replace(sm_clock=Mean(s(120), s(60)))
ALWAYS_TOGETHER = Together(
    in_use_ns=s(100), all_paused_ns=s(50), all_pauses=9, in_use_gpu_ns=s(200),
    paused_gpu_ns=s(100), by_chance_ns=s(25), in_use=(0, 1), idle_beside_peer_ns=(0, 0),
)  # fmt: skip

LOOKS = (
    evidence(task(0.6, 0.1, 204.0), threads=gil_threads(2)),
    evidence(threads=(task(1.0), task(0.6, switches=204.0))),
    evidence(workers=(task(1.0),), major_faults_per_second=400.0, memory_stalled_ratio=0.0),
    evidence(workers=(task(0.2, sleeps_in=NAP),), read_bytes_per_second=1.0, disk_busy_ratio=0.9),
    evidence(task(0.2), waiting=0.3),
)


def reported(totals: GpuTotals) -> GpuReport:
    return GpuReport(index=0, uuid=None, name=None, totals=totals, verdict=diagnose(totals))


EXAMPLES: dict[str, Sequence[tuple[Any, ...]]] = {
    **{rule.id: [(totals,) for totals in TOTALS] for rule in VERDICT_RULES},
    "too_few_samples": [(GpuTotals(samples=30, sample_distance_ns=s(1)),)],
    "starved_now": [(0.1, False), (0.1, True)],
    "under_filled": [(gpm_fill(0.2),), (power_fill(180.0),), (NO_FILL,)],
    "held_down": [(gpm_fill(0.2, held=0.6),)],
    "throttled": [(gpm_fill(0.2, held=0.6),)],
    "all_pause_together": [(ALWAYS_TOGETHER,)],
    "idle_beside_peer": [(s(50), s(100))],
    "memory_held": [(HeldMemory(s(9_000), s(9_000), 8 << 30),)],
    "sampling_too_coarse": [(s(60),)],
    "worth_a_change": [
        (reported(STARVES), IdleCause.INPUT_WAIT),
        (reported(STARVES), IdleCause.START_UP),
    ],
    "late_first_batch": [(reported(STARVES),)],
    "hidden_input_wait": [(STARVES,)],
    "unequal_gpus": [(EVEN,)],
    **{rule.id: [([one],) for one in LOOKS] for rule in REASON_RULES},
    "lower_clocks": [(gpm_fill(0.9), gpm_fill(0.9)), (HELD_LOW, NO_FILL)],
    "other_tenant": [(0.5, s(100))],
    "more_work": [(0.6, 0.4)],
    "slower_board": [("A", "B", 1.5)],
}
"""Arguments for each rule, so that it reads its thresholds."""


def asked_by(rule: Rule) -> set[str]:
    """The thresholds that a rule reads."""
    names: set[str] = set()
    last = [*inspect.signature(rule.holds).parameters.values()][-1]
    everything = Asked(DEFAULT_SETTINGS, names)
    groups = {"DetectorSettings": everything} | {
        type(value).__name__: getattr(everything, field)
        for field in DEFAULT_SETTINGS.__slots__
        if is_dataclass(value := getattr(DEFAULT_SETTINGS, field))
    }
    for example in EXAMPLES[rule.id]:
        rule.holds(*example, groups[str(last.annotation)])
    return names


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
class TestEachRule:
    def test_has_an_id_that_scripts_can_name_and_sentences_for_people(self, rule: Rule) -> None:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", rule.id)
        assert rule.evidence.endswith(".")
        assert not rule.says.endswith(".")

    def test_reads_the_thresholds_it_names_and_no_others(self, rule: Rule) -> None:
        assert asked_by(rule) == set(rule.thresholds)

    def test_names_only_thresholds_that_there_are(self, rule: Rule) -> None:
        assert {*rule.thresholds, *rule.measured_with} <= NAMES
        assert not {*rule.thresholds} & {*rule.measured_with}


class TestTheRules:
    def test_include_one_per_verdict_in_their_order(self) -> None:
        assert [rule.id for rule in VERDICT_RULES] == [name.value for name in VerdictName]
        assert {rule.kind for rule in VERDICT_RULES} == {RuleKind.VERDICT}

    def test_end_with_one_that_always_holds(self) -> None:
        assert VERDICT_RULES[-1].holds(GpuTotals(), DEFAULT_SETTINGS)


class TestNoThreshold:
    def test_is_left_without_a_rule_or_a_wording_that_it_decides(self) -> None:
        of_rules = {name for rule in ALL_RULES for name in (*rule.thresholds, *rule.measured_with)}

        assert of_rules | BESIDE_RULES.keys() == NAMES
        assert of_rules & BESIDE_RULES.keys() == set()
