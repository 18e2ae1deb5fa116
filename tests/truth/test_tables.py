"""The tables that commands of ``make truth`` write: one case each."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.core.phase import IdleCause
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.logs import smi_log
from tests.builders.report import gpu, report
from tests.truth.advice.followed import Followed, bounds_table, followed_of, is_kept
from tests.truth.advice.runs import CASES
from tests.truth.host.cells import Cell, Reported, diagnosed, together
from tests.truth.host.conditions import CONDITIONS, LOADERS
from tests.truth.host.loaders import BATCHES
from tests.truth.host.page import is_met, results_table
from tests.truth.host.work import WORKS
from tests.truth.public_logs import PUBLISHED, published_table
from tests.truth.tables import put

SAVED = Followed("checkpoint", None, 2.0, 1.8, "Save less often.")
DISK = Cell("disk, O_DIRECT in sequence", "1 process")


def test_a_page_keeps_all_text_outside_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    around = "a\n<!-- measured: x -->\n{}\n<!-- /measured: x -->\nb\n"
    page.write_text(around.format("old"))

    put("x", "new", page)

    assert page.read_text() == around.format("new")


def test_published_logs_get_a_row_each(tmp_path: Path) -> None:
    starving = [round(96 * ratio) for ratio in on_and_off(late_waves(60))]
    (tmp_path / PUBLISHED[1].file).write_text(smi_log(starving))

    shown = published_table(tmp_path)

    (row,) = [line for line in shown.splitlines() if PUBLISHED[1].source in line]
    assert "| starvation suspected (late input: " in row
    assert row.endswith("| yes | no | yes | yes |")
    assert shown.endswith("0 of 1.")


class TestAdvice:
    @pytest.mark.parametrize(
        ("gain", "kept"), [(1.49, False), (1.5, True), (2.0, True), (2.03, True), (2.05, False)]
    )
    def test_is_kept_between_half_of_the_promised_gain_and_all(
        self, gain: float, kept: bool
    ) -> None:
        assert is_kept(SAVED._replace(gain=gain)) is kept

    def test_must_be_in_the_report(self) -> None:
        with pytest.raises(AssertionError):
            followed_of("checkpoint", report(gpu(60)), report(gpu(60)))

    def test_has_a_row_for_each_case(self) -> None:
        tight = SAVED._replace(gain=3.0)

        shown = bounds_table({"saving": SAVED, "tight": tight, "memory": "no cgroup"})

        assert "| saving | checkpoint | 2.00 | 1.80 | yes |" in shown
        assert "| tight | checkpoint | 2.00 | 3.00 | **no** |" in shown
        assert "not made: no cgroup" in shown

    def test_is_measured_for_every_cause_of_one_run(self) -> None:
        of_others = {"within_step", "imbalance", "unknown", "not_in_use", "input_wait"}

        assert {cause.value for cause in IdleCause} - of_others <= {
            case.cause for case in CASES.values()
        }


class TestAReasonOfAWait:
    @pytest.mark.parametrize(
        ("condition", "waits", "steps", "idle_s", "expected"),
        [
            pytest.param(
                DISK.condition, {"disk_bound": 5.0, "cpu_bound": 2.0, "unknown": 1.0}, {},
                {"input_wait": 8.0}, (5.0, 2.0, 1.0), id="right, wrong and unknown",
            ),
            pytest.param(
                DISK.condition, {}, {}, {"input_wait": 8.0}, (0.0, 0.0, 8.0), id="no reason"
            ),
            pytest.param(
                "GIL, batches ready", {"unknown": 1.0}, {"gil_bound": 4.0, "unknown": 2.0},
                {"input_wait": 1.0, "within_step": 6.0}, (4.0, 0.0, 3.0), id="GIL within steps",
            ),
            pytest.param(
                DISK.condition, {"disk_bound": 5.0}, {"gil_bound": 4.0},
                {"input_wait": 5.0, "within_step": 6.0}, (5.0, 4.0, 0.0), id="no GIL within steps",
            ),
            pytest.param(
                "slow pipe", {}, {}, {"input_wait": 8.0}, (8.0, 0.0, 0.0), id="may be unknown"
            ),
        ],
    )  # fmt: skip
    def test_is_right_wrong_or_unknown(
        self,
        condition: str,
        waits: dict[str, float],
        steps: dict[str, float],
        idle_s: dict[str, float],
        expected: tuple[float, float, float],
    ) -> None:
        printed = {
            "idle_by_cause": idle_s, "input_wait_by_reason": waits, "within_step_by_reason": steps,
        }  # fmt: skip

        found = diagnosed(CONDITIONS[condition], printed, idle_s=9.0)

        assert (found.right_s, found.wrong_s, found.unknown_s) == expected

    @pytest.mark.parametrize(
        ("right_s", "wrong_s", "unknown_s", "expected"),
        [(90.0, 2.0, 8.0, True), (89.0, 2.0, 9.0, False), (95.0, 3.0, 2.0, False)],
    )
    def test_meets_the_goal_in_nine_of_ten_seconds_with_few_wrong_ones(
        self, right_s: float, wrong_s: float, unknown_s: float, expected: bool
    ) -> None:
        results = {
            DISK: Reported(100.0, right_s, wrong_s, unknown_s, {}),
            Cell("healthy", "1 process"): Reported(9.0, 0.0, 9.0, 0.0, {}),
        }

        assert is_met(results) is expected
        assert not is_met({DISK: "no O_DIRECT"})

    def test_is_summed_over_runs_and_has_a_row_if_it_was_not_made(self) -> None:
        runs = [Reported(3.0, 1.0, 0.5, 0.5, {"disk_bound": 1.0, "cpu_bound": 0.5})] * 2

        assert together(runs) == Reported(6.0, 2.0, 1.0, 1.0, {"disk_bound": 2.0, "cpu_bound": 1.0})
        assert "not made: no O_DIRECT" in results_table({DISK: "no O_DIRECT"})

    def test_has_conditions_of_existing_work_and_loaders(self) -> None:
        assert {condition.work for condition in CONDITIONS.values()} == set(WORKS)
        assert {loader.kind for loader in LOADERS.values()} == {*BATCHES, "PyDataset"}
