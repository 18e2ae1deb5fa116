"""What a report says of a wait is compared with the reasons that are true of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.truth.host.cells import Cell, Reported, all_cells, diagnosed, together
from tests.truth.host.conditions import CONDITIONS, LOADERS
from tests.truth.host.loaders import BATCHES
from tests.truth.host.page import is_met, results_table
from tests.truth.host.work import WORKS

DISK, GIL = "disk, O_DIRECT in sequence", "GIL, batches ready"


def gpu(waits: dict[str, float], steps: dict[str, float], **idle_s: float) -> dict[str, Any]:
    """That of a report."""
    return {
        "idle_by_cause": idle_s,
        "input_wait_by_reason": waits,
        "within_step_by_reason": steps,
    }


class TestASecondLost:
    def test_is_right_wrong_or_unknown_by_its_reason(self) -> None:
        printed = gpu({"disk_bound": 5.0, "cpu_bound": 2.0, "unknown": 1.0}, {}, input_wait=8.0)

        reported = diagnosed(CONDITIONS[DISK], printed, idle_s=8.0)

        assert (reported.right_s, reported.wrong_s, reported.unknown_s) == (5.0, 2.0, 1.0)

    def test_without_any_reason_is_unknown(self) -> None:
        reported = diagnosed(CONDITIONS[DISK], gpu({}, {}, input_wait=8.0), idle_s=8.0)

        assert (reported.right_s, reported.wrong_s, reported.unknown_s) == (0.0, 0.0, 8.0)

    def test_counts_within_steps_where_the_gil_is_held(self) -> None:
        printed = gpu(
            {"unknown": 1.0}, {"gil_bound": 4.0, "unknown": 2.0}, input_wait=1.0, within_step=6.0
        )

        reported = diagnosed(CONDITIONS[GIL], printed, idle_s=7.0)

        assert (reported.right_s, reported.wrong_s, reported.unknown_s) == (4.0, 0.0, 3.0)

    def test_within_steps_is_wrong_where_no_one_holds_the_gil(self) -> None:
        printed = gpu({"disk_bound": 5.0}, {"gil_bound": 4.0}, input_wait=5.0, within_step=6.0)

        reported = diagnosed(CONDITIONS[DISK], printed, idle_s=9.0)

        assert (reported.right_s, reported.wrong_s, reported.unknown_s) == (5.0, 4.0, 0.0)

    def test_may_have_no_reason_where_none_can_be_seen(self) -> None:
        reported = diagnosed(CONDITIONS["slow pipe"], gpu({}, {}, input_wait=8.0), idle_s=8.0)

        assert (reported.right_s, reported.wrong_s, reported.unknown_s) == (8.0, 0.0, 0.0)


class TestTheAims:
    @pytest.mark.parametrize(
        ("right_s", "wrong_s", "unknown_s", "is_expected"),
        [(90.0, 2.0, 8.0, True), (89.0, 2.0, 9.0, False), (95.0, 3.0, 2.0, False)],
    )
    def test_are_met_by_nine_right_seconds_in_ten_and_hardly_a_wrong_one(
        self, right_s: float, wrong_s: float, unknown_s: float, is_expected: bool
    ) -> None:
        reported = Reported(100.0, right_s, wrong_s, unknown_s, {})

        assert is_met({Cell(DISK, "1 process"): reported}) is is_expected

    def test_leave_out_what_loses_nothing(self) -> None:
        results = {
            Cell(DISK, "1 process"): Reported(9.0, 9.0, 0.0, 0.0, {}),
            Cell("healthy", "1 process"): Reported(9.0, 0.0, 9.0, 0.0, {}),
        }

        assert is_met(results)

    def test_are_missed_where_nothing_was_measured(self) -> None:
        assert not is_met({Cell(DISK, "1 process"): "no O_DIRECT"})


class TestTheTable:
    def test_says_which_row_was_not_made_and_why(self) -> None:
        (row,) = [
            line
            for line in results_table({Cell(DISK, "1 process"): "no O_DIRECT"}).splitlines()
            if DISK in line
        ]

        assert "not made: no O_DIRECT" in row

    def test_adds_up_the_runs_of_a_cell(self) -> None:
        runs = [Reported(3.0, 1.0, 0.5, 0.5, {"disk_bound": 1.0, "cpu_bound": 0.5})] * 2

        assert together(runs) == Reported(6.0, 2.0, 1.0, 1.0, {"disk_bound": 2.0, "cpu_bound": 1.0})


class TestEveryCell:
    def test_is_made_of_what_there_is(self) -> None:
        works = {CONDITIONS[cell.condition].work for cell in all_cells()}
        kinds = {LOADERS[cell.loader].kind for cell in all_cells()}

        assert works == set(WORKS)
        assert kinds == {*BATCHES, "PyDataset"}
