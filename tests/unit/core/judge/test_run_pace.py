"""Specification of a training's pace: by label, over wall time, and what it became."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.run_pace import paces, pairs_of
from gpumon.core.report.report import RunReport
from tests.builders_report import report, run
from tests.builders_time import s


def named(
    name: str, steps: int = 500, wall_s: float = 60.0, samples: int | None = None
) -> RunReport:
    return replace(run(steps=steps, wall_s=wall_s), run=name, samples=samples)


class TestAPace:
    def test_is_the_wall_time_of_a_step(self) -> None:
        (pace,) = paces([named("a", steps=500, wall_s=60)])

        assert pace.step_wall_ns == pytest.approx(s(0.12))
        assert pace.samples_per_second is None

    def test_knows_samples_where_the_training_tells_them(self) -> None:
        (pace,) = paces([named("a", steps=500, wall_s=50, samples=16_000)])

        assert pace.samples_per_step == 32
        assert pace.samples_per_second == 320

    def test_is_none_where_no_step_was_counted(self) -> None:
        (pace,) = paces([named("a", steps=0, samples=0)])

        assert (pace.step_wall_ns, pace.samples_per_step) == (None, None)
        assert pace.samples_per_second is None

    def test_of_a_run_without_wall_time_is_none(self) -> None:
        (pace,) = paces([named("a", wall_s=0, samples=5)])

        assert (pace.step_wall_ns, pace.samples_per_second) == (None, None)

    def test_takes_runs_of_one_label_together_for_they_came_one_after_the_other(self) -> None:
        (pace,) = paces([named("a", steps=300, wall_s=60), named("a", steps=200, wall_s=40)])

        assert (pace.steps, pace.wall_ns) == (500, s(100))

    def test_has_no_samples_where_one_run_of_the_label_tells_none(self) -> None:
        (pace,) = paces([named("a", samples=100), named("a")])

        assert pace.samples is None


class TestPairs:
    def test_are_runs_of_one_label_and_the_others_are_named(self) -> None:
        pairs = pairs_of(
            report(runs=(named("a"), named("b"))), report(runs=(named("c"), named("b")))
        )

        assert [pair.after.run for pair in pairs.both] == ["b"]
        assert [pace.run for pace in pairs.only_before] == ["a"]
        assert [pace.run for pace in pairs.only_after] == ["c"]

    def test_are_the_only_run_of_each_whatever_they_are_called(self) -> None:
        pairs = pairs_of(report(runs=(named("slow"),)), report(runs=(named("fast"),)))

        assert len(pairs.both) == 1
        assert pairs.is_whole

    def test_leave_out_what_had_ended_before(self) -> None:
        ended = replace(named("a"), ended_before=True)

        assert not pairs_of(report(runs=(ended,)), report(runs=(named("a"),))).both


class TestASpeedup:
    def test_is_by_wall_time_a_step(self) -> None:
        pairs = pairs_of(
            report(runs=(named("a", steps=500, wall_s=60),)),
            report(runs=(named("a", steps=1_000, wall_s=60),)),
        )

        assert pairs.speedup == pytest.approx(2)

    def test_is_by_samples_where_a_step_is_of_another_size(self) -> None:
        pairs = pairs_of(
            report(runs=(named("a", steps=500, wall_s=60, samples=500 * 32),)),
            report(runs=(named("a", steps=250, wall_s=60, samples=250 * 64),)),
        )

        assert pairs.both[0].has_unlike_steps
        assert pairs.speedup == pytest.approx(1)

    @pytest.mark.parametrize("steps", [(0, 500), (500, 0), (0, 0)])
    def test_is_none_where_steps_were_not_counted_in_both(self, steps: tuple[int, int]) -> None:
        one, other = (report(runs=(named("a", steps=count),)) for count in steps)

        assert pairs_of(one, other).speedup is None

    def test_of_ranks_is_that_of_each_and_not_their_number(self) -> None:
        two = report(runs=tuple(named(f"a-r{rank}") for rank in range(2)))
        eight = report(runs=tuple(named(f"a-r{rank}") for rank in range(8)))

        assert pairs_of(two, eight).speedup == pytest.approx(1)

    def test_of_several_weighs_each_by_the_time_it_took(self) -> None:
        before = report(runs=(named("a", 100, 90), named("b", 100, 10)))
        after = report(runs=(named("a", 100, 45), named("b", 100, 10)))

        assert pairs_of(before, after).speedup == pytest.approx(100 / 55)
