"""Specification of nvidia-smi -q: the utilisation of each GPU's page, and no other number on it."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu
from tests.builders_logs import ratios, read_log, rows, seconds_of

TITLE = "==============NVSMI LOG=============="


def stamp(second: int) -> str:
    return f"Timestamp                   : Sat Jan 24 21:52:{second:02} 2026"


def page(answer: str = "29 %", bus: str = "31") -> tuple[str, ...]:
    return (
        f"GPU 00000000:{bus}:00.0",
        "    Product Name            : NVIDIA A40",
        "    GPU UUID                : GPU-0a1b",
        "    MIG Mode",
        "        Current             : Disabled",
        "    FB Memory Usage",
        "        Total               : 46068 MiB",
        "        Used                : 1835 MiB",
        "    BAR1 Memory Usage",
        "        Total               : 65536 MiB",
        "        Used                : 5 MiB",
        "    Utilization",
        f"        Gpu                 : {answer}",
        "        Memory              : 77 %",
        "    GPU Utilization Samples",
        "        Max                 : 99 %",
    )


def moment(second: int, *pages: tuple[str, ...]) -> tuple[str, ...]:
    return (TITLE, "", stamp(second), "", *(line for one in pages for line in one))


def told(facts: LogFacts, part: str) -> bool:
    return any(part in note for note in facts.notes)


class TestAPage:
    def test_ends_before_lines_of_something_else_which_are_counted(self) -> None:
        other = "2026/01/24 21:52:14.120, 0, 94 %"

        samples, facts = read_log(rows(*moment(14, page()), other, other))

        assert (len(samples), facts.skipped_lines) == (1, 2)

    def test_is_made_of_lines_with_a_blank_before_them(self) -> None:
        told_deeper = (*page()[:1], " Product Name : NVIDIA A40", *page()[2:])

        _, facts = read_log(rows(*moment(14, told_deeper), "A line of another program"))

        assert facts.skipped_lines == 1

    def test_has_the_utilisation_the_memory_and_the_gpu(self) -> None:
        (sample,), facts = read_log(rows(*moment(14, page())))

        assert (sample.busy_ratio, sample.memory_used_bytes) == (0.29, 1835 << 20)
        assert facts.gpus == (
            LoggedGpu(uuid="GPU-0a1b", name="NVIDIA A40", memory_bytes=46_068 << 20),
        )
        assert facts.clock.iso(sample.stamp_ns) == "2026-01-24T21:52:14.000"

    def test_is_one_moment_of_one_gpu(self) -> None:
        first = moment(14, page(), page("97 %", "97"))
        second = moment(16, page("0 %"), page("98 %", "97"))

        samples, _ = read_log(rows(*first, *second))

        assert [(one.gpu, one.busy_ratio) for one in samples] == [
            (0, 0.29), (1, 0.97), (0, 0.0), (1, 0.98)
        ]  # fmt: skip
        assert seconds_of([one.stamp_ns for one in samples]) == [0, 0, 2, 2]

    def test_of_memory_in_a_part_of_the_gpu_is_not_the_gpus(self) -> None:
        part = ("    MIG Device", "        FB Memory Usage", "            Used     : 3 MiB")
        one = page()

        (sample,), _ = read_log(rows(*moment(14, (*one[:5], *part, *one[5:]))))

        assert sample.memory_used_bytes == 1835 << 20

    @pytest.mark.parametrize("answer", ["N/A", "ERR!", "[GPU requires reset]"])
    def test_may_have_no_answer(self, answer: str) -> None:
        samples, facts = read_log(rows(*moment(14, page()), *moment(15, page(answer))))

        assert [one.busy_ratio for one in samples] == [0.29, None]
        assert told(facts, "Skipped 1 line without an answer")

    def test_whose_heading_cannot_be_read_is_not_that_of_the_gpu_before(self) -> None:
        lost = ("GPX 00000000:97:00.0", *page("97 %")[1:])

        samples, facts = read_log(rows(*moment(14, page(), lost)))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 1 line of no GPU")

    @pytest.mark.parametrize("kept", [1, 5, 12])
    def test_that_was_cut_off_is_counted(self, kept: int) -> None:
        samples, facts = read_log(rows(*moment(14, page()), *moment(15, page()[:kept])))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 1 line of a table that was cut off")

    def test_without_its_unit_is_no_utilisation(self) -> None:
        log = rows(*moment(14, page()), *moment(15, page("2")))

        assert ratios(log) == [0.29, None]

    def test_of_a_gpu_in_instances_is_not_observed_and_that_is_said(self) -> None:
        cut = tuple(line.replace("Disabled", "Enabled") for line in page("N/A"))

        samples, facts = read_log(rows(*moment(14, cut)))

        assert [one.busy_ratio for one in samples] == [None]
        assert facts.gpus[0].mig_enabled
        assert told(facts, "GPU 0 is cut into MIG instances")


class TestTheStamp:
    @pytest.mark.parametrize("line", [2, 0])
    def test_that_is_lost_leaves_no_other_in_its_place(self, line: int) -> None:
        second = [*moment(15, page("97 %"))]
        second[line] = "Timestamp    : Sbt Jbn 24" if line else ""

        samples, _ = read_log(rows(*moment(14, page()), *second, *moment(16, page())))

        expected = [0.29, 0.29] if line else [0.29, 0.97, 0.29]
        assert [one.busy_ratio for one in samples] == expected


class TestALogOfNoUse:
    def test_without_a_utilisation_says_what_to_log(self) -> None:
        with pytest.raises(UnreadableLogError, match="-d UTILIZATION,MEMORY"):
            read_log(rows(*moment(14, page()[:8])))
