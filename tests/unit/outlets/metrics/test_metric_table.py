"""Tests of metric names: the rules of Prometheus, including those that promtool does not check."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.outlets.metrics.metric_table import METRICS, MetricKind, MetricSpec

ROOT = Path(__file__).resolve().parents[4]
BASE_UNITS = {"seconds", "bytes", "joules", "watts", "celsius", "hertz"}
UNIT_IN_HELP = re.compile(rf" in ({'|'.join(BASE_UNITS)})\b(?! per)")
WRONG_UNITS = re.compile(
    r"(?i)percent|pct|_(ms|us|ns|milli\w*|micro\w*|nano\w*|minutes?|hours?|[kmgt]i?b|kilo\w*|"
    r"mega\w*|giga\w*|[mg]hz|mw|mj|fahrenheit|(?<!per_)second|byte)(_|$)"
)
RESERVED_LABELS = {"type", "env", "service", "cluster", "instance", "le", "quantile"}


def lint(spec: MetricSpec) -> list[str]:
    """Problems of a name, a label or a help text."""
    problems = []
    if not re.fullmatch(r"gpumon(_[a-z0-9]+)+", spec.name):
        problems.append("not gpumon_ and snake case")
    if WRONG_UNITS.search(spec.name):
        problems.append("not a base unit, or not in the plural")
    if (spec.kind is MetricKind.COUNTER) != spec.name.endswith("_total"):
        problems.append("_total is for counters, and all of them")
    unit = spec.name.removesuffix("_total").rpartition("_")[2]
    if set(UNIT_IN_HELP.findall(spec.help)) != BASE_UNITS & {unit}:
        problems.append("the name's unit is not that of the help")
    if RESERVED_LABELS & set(spec.labels):
        problems.append("a label with another meaning in Prometheus")
    if not re.fullmatch(r"[A-Z][^\n]*\.", spec.help):
        problems.append("the help is not one sentence")
    return problems


class TestEachFamily:
    @pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
    def test_follows_the_naming_rules(self, spec: MetricSpec) -> None:
        assert lint(spec) == []

    def test_has_a_unique_name(self) -> None:
        names = [spec.name for spec in METRICS]

        assert len(names) == len(set(names))


def test_the_lint_finds_what_promtool_misses() -> None:
    wrong = MetricSpec(
        name="gpumon_gpu_idle_ms_total", kind=MetricKind.COUNTER, help="Idle.", group="g", read=None
    )

    assert lint(wrong) != []


PAGE = ROOT / "docs" / "metrics.md"
HEAD_OF_TABLE = "| metric | type | labels | meaning |\n|---|---|---|---|\n"


def with_table(page: str) -> str:
    """The page with the present table."""
    rows = (
        f"| `{spec.name}` | {spec.kind.value} | "
        f"{', '.join(f'`{label}`' for label in spec.labels)} | {spec.help} |\n"
        for spec in METRICS
    )
    bounds = ", ".join(f"{bound:g}" for bound in GAP_BUCKETS_SECONDS)
    return (
        f"{page.partition(HEAD_OF_TABLE)[0]}{HEAD_OF_TABLE}{''.join(rows)}\n"
        f"Buckets of `gpumon_gpu_idle_gap_seconds`: {bounds} s.\n"
    )


def test_the_page_has_the_present_table() -> None:
    if os.environ.get("GPUMON_UPDATE_GOLDEN"):
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page), "run: make golden"
