"""Specification of the comparison: what was lost, what was won back, and what was promised.

Its text is in ``tests/golden``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpumon.core.diagnosis.report_differences import speedup
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report
from gpumon.outlets.text.comparison import promise_was_kept, side_by_side
from tests.builders.report import gpu, report, run
from tests.unit.outlets.report_lines import PLAIN

WAIT = IdleCause.INPUT_WAIT
SLOW = report(gpu(30, {WAIT: 30}), runs=(run(wall_s=60),))
FAST = report(gpu(30, {WAIT: 1}), runs=(run(wall_s=31.25),))
QUICKER = report(gpu(30, {WAIT: 1}), runs=(run(wall_s=20),))
UNTAGGED = report(gpu(30, {WAIT: 30}))
EIGHT = report(*(gpu(600, index=at) for at in range(8)), runs=(run(steps=9_000, wall_s=600),))


def compared(before: Report = SLOW, after: Report = FAST) -> str:
    text = side_by_side(before, after, PLAIN)
    assert max(len(line) for line in text.splitlines()) <= 80
    return " ".join(text.split())


def with_runs(one: Report, names: Sequence[str]) -> Report:
    return replace(one, runs=tuple(replace(one.runs[0], run=name) for name in names))


class TestTheTable:
    def test_leaves_out_a_cause_with_next_to_no_time_on_either_side(self) -> None:
        crumb = {WAIT: 30, IdleCause.CALLBACKS: 0.000074}

        assert "callbacks" not in compared(report(gpu(100, crumb)), report(gpu(120, crumb)))

    def test_counts_no_step_of_a_run_that_had_ended_before(self) -> None:
        before = replace(run(steps=9_000, wall_s=10), ended_before=True)

        assert compared(after=replace(FAST, runs=(before, *FAST.runs))) == compared()


class TestASpeedup:
    @pytest.mark.parametrize(
        ("before", "after", "times"),
        [
            (SLOW, FAST, 1.92),
            (SLOW, QUICKER, 3.0),
            (SLOW, UNTAGGED, None),
            (UNTAGGED, SLOW, None),
            (SLOW, EIGHT, None),
            (with_runs(SLOW, "ab"), with_runs(FAST, "cd"), None),
        ],
        ids=[
            "of one run", "beyond the bound", "where steps were counted before alone",
            "where they were afterwards alone", "of another machine", "of runs of other names",
        ],
    )  # fmt: skip
    def test_is_printed_where_there_is_one(
        self, before: Report, after: Report, times: float | None
    ) -> None:
        assert speedup(before, after) == (times and pytest.approx(times))
        printed = re.findall(r"(\d+\.\d+) times as fast, in ", compared(before, after))
        assert printed == ([] if times is None else [f"{times:.2f}"])


class TestAPromise:
    @pytest.mark.parametrize(
        ("bound", "measured", "kept"), [(2.0, 1.9, True), (2.0, 2.03, True), (2.0, 2.05, False)]
    )
    def test_is_kept_within_two_percent(self, bound: float, measured: float, kept: bool) -> None:
        assert promise_was_kept(bound, measured) is kept


class TestManyRuns:
    @pytest.mark.parametrize("wall_s", [1e-6, 1e7])
    def test_fit_their_columns_whatever_a_step_takes(self, wall_s: float) -> None:
        one = replace(SLOW, runs=(run(steps=1, wall_s=wall_s),))

        assert compared(*(with_runs(one, ["a" * 40, "b" * 40]) for _ in range(2)))
