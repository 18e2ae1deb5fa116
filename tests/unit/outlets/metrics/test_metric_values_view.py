"""Specification of what gets series: each label set once, and never too many."""

from __future__ import annotations

from gpumon.outlets.metrics.metric_values import MAX_RUNS, LabelBudget, MetricView
from tests.builders_state import monitor_state, run, starved_gpu


def dropped(selection: MetricView) -> dict[str, int]:
    return {family: count for family, count in selection.dropped if count}


class TestRuns:
    def test_of_different_names_all_get_series(self) -> None:
        selection = LabelBudget().select(monitor_state(runs=(run("a"), run("b"))))

        assert [one.run for one in selection.runs] == ["a", "b"]
        assert dropped(selection) == {}

    def test_beyond_the_limit_are_left_out_and_counted(self) -> None:
        many = tuple(run(f"run-{number}") for number in range(10_000))

        selection = LabelBudget().select(monitor_state(runs=many))

        assert len(selection.runs) == MAX_RUNS == 64
        assert dropped(selection) == {"gpumon_training": 10_000 - 64}

    def test_of_the_same_name_are_refused_but_the_living_one(self) -> None:
        ended, living = run("train", alive=False, steps=9), run("train", steps=2)

        selection = LabelBudget().select(monitor_state(runs=(ended, living)))

        assert selection.runs == (living,)
        assert dropped(selection) == {"gpumon_training": 1}

    def test_whose_names_differ_only_in_what_is_sanitised_count_as_one(self) -> None:
        selection = LabelBudget().select(monitor_state(runs=(run("a\n"), run("a\t"))))

        assert len(selection.runs) == 1

    def test_that_live_come_before_those_that_ended(self) -> None:
        many = [run(f"old-{number}", alive=False) for number in range(MAX_RUNS)]

        selection = LabelBudget().select(monitor_state(runs=(*many, run("new"))))

        assert "new" in [one.run for one in selection.runs]


class TestTheCount:
    def test_grows_once_a_tick(self) -> None:
        budget = LabelBudget()
        twice = monitor_state(gpus=(starved_gpu(), starved_gpu()))

        budget.select(twice)
        selection = budget.select(twice)

        assert dropped(selection) == {"gpumon_gpu": 2}
