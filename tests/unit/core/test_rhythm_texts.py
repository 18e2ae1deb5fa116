"""Specification of what is said of pauses without a rhythm, and of pauses like a clock."""

from __future__ import annotations

from gpumon.core.figures import in_seconds
from gpumon.core.report import Report
from gpumon.outlets.report_headline import verdict_line, why_line
from gpumon.outlets.report_next import next_line
from tests.builders_cycles import waits_of_a_person
from tests.builders_logs import analysed, only_gpu, smi_log


def report_of(*cycles_s: tuple[int, int]) -> Report:
    """A log of a GPU that works and pauses for so many seconds in turn."""
    rows = [level for burst, pause in cycles_s for level in [96] * burst + [0] * pause]
    return analysed(smi_log([*rows, 96]))


def cells() -> list[tuple[int, int]]:
    return [(2, round(wait_s)) for wait_s in waits_of_a_person(150)]


class TestPausesWithoutARhythm:
    def test_are_said_to_be_no_trainings(self) -> None:
        report = report_of(*cells())

        assert verdict_line(report).endswith("and not in the rhythm of a training.")
        assert why_line(report).endswith(" s of it without a rhythm.")

    def test_are_told_beside_those_before_which_nobody_could_know(self) -> None:
        report = report_of(*cells())
        totals = only_gpu(report).totals

        assert totals.suspected_ns > 0
        irregular = in_seconds(totals.irregular_ns)
        assert f", in {totals.gaps.count} pauses; {irregular} of it without" in why_line(report)

    def test_send_the_reader_to_whoever_else_could_use_the_gpu(self) -> None:
        said = next_line(report_of(*cells()))

        assert said.startswith("Requests to a server and the cells of a notebook come like this")
        assert "let others share the GPU, or end what nobody uses" in said


class TestAGpuThatIsMostlyIdle:
    def test_is_not_put_down_to_small_kernels(self) -> None:
        rows = [0, 9, 0, 19, 0, 0, 16, 0, 2, 0, 11] * 20

        said = next_line(analysed(smi_log(rows)))

        assert said.startswith("For most of its time in use next to nothing ran")
        assert "small kernels" not in said


class TestPausesThatComeLikeAClock:
    def test_are_counted_by_it(self) -> None:
        assert ", one every 132.0 s like a clock." in why_line(report_of(*[(120, 12)] * 20))

    def test_send_the_reader_to_what_is_done_every_so_many_steps(self) -> None:
        said = next_line(report_of(*[(120, 12)] * 20))

        assert "checkpoints, evaluations, or workers that start anew with each epoch" in said

    def test_are_a_loaders_where_they_come_within_seconds(self) -> None:
        report = report_of(*[(5, 3)] * 40)

        assert "like a clock" not in why_line(report)
        assert next_line(report).startswith("Pauses between bursts often mean that batches come")

    def test_are_no_clock_where_some_come_early(self) -> None:
        assert "like a clock" not in why_line(report_of(*[(120, 12), (60, 12)] * 10))
