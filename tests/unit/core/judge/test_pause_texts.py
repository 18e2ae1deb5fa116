"""Specification of what is said of pauses without a rhythm, and of pauses like a clock."""

from __future__ import annotations

from gpumon.core.report.report import Report
from gpumon.core.wording import in_time
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
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
        irregular = in_time(totals.irregular_ns)
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


class TestWhatIsCertain:
    """It comes first: how much is lost, in how many pauses of what length, and how often."""

    def test_is_said_of_a_suspicion(self) -> None:
        said = verdict_line(report_of(*[(69, 28)] * 45))

        assert "GPU 0 loses 29 % of its time in 45 pauses of 28 s, one every 97 s." in said

    def test_is_how_often_also_of_few_which_have_one_burst_more_around_them(self) -> None:
        said = verdict_line(report_of(*[(50, 10)] * 5, (50, 0)))

        assert " in 5 pauses of 10 s, one every 60 s." in said

    def test_is_said_of_pauses_too_few_for_one(self) -> None:
        said = verdict_line(report_of((30, 55), (40, 58)))

        assert said.startswith("partial (moderate loss): GPU 0 loses 62 % of its time in 2 pauses")
        assert "and nothing tells why." in said

    def test_is_no_length_that_so_few_samples_cannot_show(self) -> None:
        rows = [level for _ in range(30) for level in [97, 97, 97, 0]]

        said = verdict_line(analysed(smi_log([*rows, 97], 60.0)))

        assert "% of its time in 30 pauses, one every 4 min." in said


class TestFewOrLongPauses:
    def test_that_are_few_are_to_be_looked_at_not_prefetched_away(self) -> None:
        said = next_line(report_of(*[(60, 15)] * 6, (30, 15)))

        assert said.startswith("7 pauses are too few to tell a late loader from checkpoints")
        assert "prefetch" not in said
        assert "times as fast" not in said

    def test_that_are_long_are_to_be_looked_at_too(self) -> None:
        rows = [level for at in range(10) for level in [97] * (2 + 3 * (at % 4)) + [0] * 11]

        report = analysed(smi_log([*rows, 97], 120.0))

        assert " in 10 pauses of 22 min, one every 33 min." in verdict_line(report)
        assert next_line(report).startswith("Pauses of 22 min can be many things: a checkpoint")
        assert "prefetch" not in next_line(report)
        assert "times as fast" not in next_line(report)

    def test_that_a_blip_splits_are_counted_once(self) -> None:
        cycles = [(30, 30), (20, 25), (1, 25)]

        report = report_of(*cycles)

        assert "in 2 pauses" in verdict_line(report)
        assert "in 2 pauses, the longest 50" in why_line(report)
        assert next_line(report).startswith("2 pauses are too few to tell")


class TestPausesThatComeLikeAClock:
    def test_are_counted_by_it(self) -> None:
        assert ", one every 132.0 s like a clock." in why_line(report_of(*[(120, 12)] * 20))

    def test_send_the_reader_to_what_is_done_every_so_many_steps(self) -> None:
        said = next_line(report_of(*[(120, 12)] * 20))

        assert "checkpoints, evaluations, or workers that start anew with each epoch" in said

    def test_are_a_loaders_where_they_come_within_time(self) -> None:
        report = report_of(*[(5, 3)] * 40)

        assert "like a clock" not in why_line(report)
        assert next_line(report).startswith("Pauses between bursts often mean that batches come")

    def test_are_no_clock_where_some_come_early(self) -> None:
        assert "like a clock" not in why_line(report_of(*[(120, 12), (60, 12)] * 10))
