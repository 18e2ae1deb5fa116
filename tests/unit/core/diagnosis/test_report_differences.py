"""Specification of the pace of runs: by label, over wall time, and their speed-up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.diagnosis.report_differences import RunPairs, paces, pairs_of
from gpumon.core.report.report import RunReport
from tests.builders.report import report, run
from tests.builders.time import s


def named(
    name: str = "a", steps: int = 500, wall_s: float = 60.0, samples: int | None = None
) -> RunReport:
    return replace(run(steps=steps, wall_s=wall_s), run=name, samples=samples)


def pairs(before: list[RunReport], after: list[RunReport]) -> RunPairs:
    return pairs_of(report(runs=tuple(before)), report(runs=tuple(after)))


class TestAPace:
    @pytest.mark.parametrize(
        ("one", "step_s", "samples_per_step", "samples_per_second"),
        [
            (named(wall_s=60), 0.12, None, None),
            (named(wall_s=50, samples=16_000), 0.1, 32, 320),
            (named(steps=0, samples=0), None, None, None),
            (named(wall_s=0, samples=5), None, 0.01, None),
        ],
        ids=["of steps", "of samples", "without steps", "without wall time"],
    )
    def test_is_the_wall_time_of_a_step_and_its_samples(
        self,
        one: RunReport,
        step_s: float | None,
        samples_per_step: float | None,
        samples_per_second: float | None,
    ) -> None:
        (pace,) = paces([one])

        assert pace.step_wall_ns == (step_s and pytest.approx(s(step_s)))
        assert pace.samples_per_step == samples_per_step
        assert pace.samples_per_second == samples_per_second

    def test_adds_up_runs_of_one_label_that_came_one_after_the_other(self) -> None:
        (pace,) = paces([named(steps=300, samples=100), named(steps=200, wall_s=40)])

        assert (pace.steps, pace.wall_ns) == (500, s(100))
        assert pace.samples is None  # one of them reports none


class TestPairs:
    def test_are_runs_of_one_label_and_the_others_are_named(self) -> None:
        found = pairs([named("a"), named("b")], [named("c"), named("b")])

        assert [pair.after.run for pair in found.both] == ["b"]
        assert [pace.run for pace in found.only_before] == ["a"]
        assert [pace.run for pace in found.only_after] == ["c"]

    def test_are_the_only_run_of_each_whatever_they_are_called(self) -> None:
        found = pairs([named("slow")], [named("fast")])

        assert len(found.both) == 1
        assert found.is_whole


class TestASpeedup:
    @pytest.mark.parametrize(
        ("before", "after", "times"),
        [
            ([named(steps=500)], [named(steps=1_000)], 2),
            ([named(steps=500, samples=16_000)], [named(steps=250, samples=16_000)], 1),
            ([named(steps=0)], [named(steps=500)], None),
            ([named(steps=500)], [named(steps=0)], None),
            ([named(steps=0)], [named(steps=0)], None),
            ([named(f"r{at}") for at in range(2)], [named(f"r{at}") for at in range(8)], 1),
            (
                [named("a", 100, 90), named("b", 100, 10)],
                [named("a", 100, 45), named("b", 100, 10)],
                100 / 55,
            ),
        ],
        ids=[
            "by wall time a step", "by samples where steps are unlike", "not without steps before",
            "not without steps after", "not without steps", "of each rank, not of their number",
            "of several, each weighed by the time it took",
        ],
    )  # fmt: skip
    def test_is_computed(
        self, before: list[RunReport], after: list[RunReport], times: float | None
    ) -> None:
        assert pairs(before, after).speedup == (times and pytest.approx(times))
