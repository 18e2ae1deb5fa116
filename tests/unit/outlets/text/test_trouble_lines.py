"""Specification of a report on GPUs in trouble: first what is broken, Next what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.board.troubles import lost, vanished
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.outlets.text.comparison import side_by_side
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from tests.builders_fill import gpm_fill
from tests.builders_report import gpu, report
from tests.builders_time import s
from tests.unit.core.board.test_troubles import DAY_S, LOST, reported
from tests.unit.outlets.report_lines import PLAIN

WELL = {IdleCause.UNKNOWN: 2.0}


def many(count: int = 8) -> list[GpuReport]:
    return [gpu(98, WELL, index=index) for index in range(count)]


def starved(index: int = 0) -> GpuReport:
    return gpu(40, {IdleCause.INPUT_WAIT: 20}, index=index)


def text(*gpus: GpuReport) -> str:
    """The report, unwrapped."""
    return " ".join(render_report(shown(*gpus), PLAIN).split())


def shown(*gpus: GpuReport) -> Report:
    return replace(report(*gpus), origin_ns=0)


def verdict(*gpus: GpuReport) -> str:
    return text(*gpus).split(" Why: ")[0]


class TestXid79:
    def test_and_a_lost_gpu_are_the_first_line_and_what_comes_next(self) -> None:
        eight = many()
        told = (*reported((79, 1)), lost(LOST, last_ns=s(99_990), index=5))
        eight[5] = replace(eight[5], error=LOST, told_troubles=told)

        said = text(*eight)

        assert said.startswith(
            "Verdict: GPU lost: GPU 5 cannot be read. It reported XID 79 (the GPU fell off the "
            "bus: the host cannot reach it any more). GPU 0, GPU 1, GPU 2, GPU 3 and 3 more work "
            "well. Why: GPU 5: the GPU is lost (NVML 15), last read at 2025-06-14 03:46:30 UTC; "
            "XID 79 once at 2025-06-14 03:46:35 UTC."
        )
        assert "Next: GPU 5: reboot, or cut the machine's power; look at its temp" in said
        assert "5 100.0 s 98 % 2.0 % 0 % lost" in said

    @pytest.mark.parametrize("others", [(), (gpu(98, WELL, index=1),)])
    def test_of_a_gpu_that_still_answers_takes_the_word_healthy(
        self, others: tuple[GpuReport, ...]
    ) -> None:
        said = text(replace(gpu(98, WELL), told_troubles=reported((79, 2))), *others)

        assert said.startswith("Verdict: GPU in trouble: GPU 0 reported XID 79 (the GPU fell off")
        assert "Healthy" not in said
        assert "GPU 0 works well" not in said
        assert "XID 79 2 times, last at 2025-06-14 03:46:35 UTC." in said

    def test_comes_before_a_loss_and_leaves_its_advice_for_after_that(self) -> None:
        said = text(starved(), replace(gpu(60, index=1), told_troubles=reported((79, 1))))

        assert "cannot reach it any more). Starved (high loss): GPU 0 waits for input" in said
        assert "works well" not in said
        assert "Next: GPU 1: reboot" in said
        assert "After that: - Idle, waiting for input: GPU 0 for 20.0 s" in said

    def test_of_days_ago_is_told_and_troubles_nobody(self) -> None:
        said = text(replace(gpu(98, WELL), told_troubles=reported((79, 1), ago_s=2 * DAY_S)))

        assert said.startswith("Verdict: Healthy: GPU 0 works well.")
        assert "Next: Nothing needs to change." in said
        assert "In trouble: - GPU 0 reported XID 79" in said


class TestAnErrorOfAProgram:
    def test_stands_beside_a_loss(self) -> None:
        said = text(starved(), replace(gpu(60, index=1), told_troubles=reported((31, 14))))

        assert said.startswith("Verdict: Starved (high loss): GPU 0 waits for input 33 % of its")
        assert "GPU 1 reported XID 31 (a kernel used memory" in said.split(" Why: ")[0]
        assert "Next: Prepare the next batches" in said

    def test_takes_the_word_healthy_where_there_is_no_loss(self) -> None:
        said = text(replace(gpu(98, WELL), told_troubles=reported((31, 14))))

        assert said.startswith("Verdict: GPU in trouble: GPU 0 reported XID 31 (")
        assert "Next: GPU 0: run the program under compute-sanitizer" in said


class TestLostGpus:
    def test_in_the_same_way_are_named_together(self) -> None:
        said = verdict(*(replace(one, error=LOST) for one in many(6)), gpu(60, index=6))

        assert said == (
            "Verdict: GPU lost: GPU 0, GPU 1, GPU 2, GPU 3 and 2 more cannot be read. "
            "GPU 6 works well."
        )

    def test_that_are_all_there_were_are_judged_until_then(self) -> None:
        said = verdict(replace(starved(), error=LOST))

        assert said.endswith("GPU 0 cannot be read. Until then starved (high loss): GPU 0 waits "
                             "for input 33 % of its time in use.")  # fmt: skip

    def test_may_have_vanished_without_a_word(self) -> None:
        gone = replace(gpu(60, index=1), listed=False, told_troubles=(vanished(index=1),))

        said = text(gpu(98, WELL), gone)

        assert said.startswith("Verdict: GPU lost: GPU 1 vanished. GPU 0 works well. Why: GPU 1: ")
        assert "Next: GPU 1: if nobody took it out, look for Xid in `dmesg`, then reboot." in said

    def test_are_named_in_the_title_of_their_table(self) -> None:
        assert "GPU 0, NVIDIA A40 (lost): in use for 60.0 s" in text(replace(gpu(60), error=LOST))

    def test_are_not_told_of_again_in_the_notes(self) -> None:
        one = replace(shown(replace(gpu(60), error=LOST)), notes=(f"GPU 0: {LOST}", "Else."))

        assert [line for line in render_report(one, PLAIN).splitlines() if "Note:" in line] == [
            "Note: Else."
        ]


ALL = tuple(
    replace(one, told_troubles=reported((13 + index, 1), (79, index + 1)), error=LOST)
    for index, one in enumerate(many(12))
)


class TestEverything:
    def test_fits_on_the_screen(self) -> None:
        lines = render_report(shown(*ALL), PLAIN).splitlines()

        assert max(map(len, lines)) <= 80
        assert any("more: --json has all of them." in line for line in lines)

    def test_is_red_as_the_worst_of_it_is(self) -> None:
        colours = TextStyle(colour=True)
        for told, colour in ((reported((79, 1)), "\x1b[31m"), (reported((31, 1)), "\x1b[33m")):
            one = render_report(shown(replace(gpu(60), told_troubles=told)), colours)
            assert one.startswith(colour)

    def test_has_its_word_in_the_row_of_a_gpu_that_mig_has_cut(self) -> None:
        cut = replace(gpu(0), uuid="GPU-a", mig_enabled=True, told_troubles=reported((48, 1)))
        lines = render_report(shown(cut, *many(6)[1:]), PLAIN).splitlines()

        assert any(line.startswith("0       XID 48: MIG is on") for line in lines)

    def test_is_in_a_comparison_too(self) -> None:
        hot = shown(replace(gpu(60), fill=gpm_fill(0.9, held=0.4)))

        assert "GPU in trouble: GPU 0 had the clocks" in side_by_side(hot, hot, PLAIN)

    @pytest.mark.parametrize("row", ["0  ", "1  "])
    def test_has_its_word_in_the_row_of_a_long_table(self, row: str) -> None:
        eight = many()
        eight[0] = replace(eight[0], told_troubles=reported((79, 1)))
        eight[1] = replace(
            gpu(40, {IdleCause.UNKNOWN: 20}, index=1, suspected_s=20, pauses=9),
            told_troubles=reported((154, 1)),
        )
        lines = render_report(shown(*eight), PLAIN).splitlines()

        (line,) = [line for line in lines if line.startswith(row) and "%" in line]
        assert line.endswith({"0  ": "  healthy, XID 79", "1  ": "  XID 154"}[row])
