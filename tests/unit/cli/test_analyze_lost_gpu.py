"""Specification of `gpumon analyze` on a log that tells of trouble: the first line says it."""

from __future__ import annotations

import json

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.core.device.troubles import TroubleKind
from gpumon.core.report.report import Report
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from tests.builders.logs import (
    LOST,
    MISMATCH,
    NO_DEVICES,
    NO_DRIVER,
    TOOLS,
    Both,
    Moment,
    analysed,
    at_work,
    csv,
    dmon,
    only_gpu,
    table,
)
from tests.command_line import Shell

SAID = {
    LOST: UNREADABLE[15].meaning,
    "GPU is lost.  Reboot the system to recover this GPU": UNREADABLE[15].meaning,
    "Unable to determine the device handle for GPU0000:18:00.0: Unknown Error":
        UNREADABLE[999].meaning,
    "\n".join(MISMATCH): "libnvidia-ml.so.1 and the loaded driver are of different versions",
    "Failed to initialize NVML:\nDriver/library version mismatch":
        "libnvidia-ml.so.1 and the loaded driver are of different versions",
    "Failed to initialize NVML: Driver/library\nversion mismatch":
        "libnvidia-ml.so.1 and the loaded driver are of different versions",
    "Failed to initialize NVML: Unknown Error": "NVML answers with an unknown error",
    NO_DRIVER: "the NVIDIA driver is not loaded",
    NO_DRIVER.replace("the latest ", "the latest\n"): "the NVIDIA driver is not loaded",
    NO_DEVICES: "the NVIDIA driver lists no GPU that can be read",
}  # fmt: skip
"""What a tool writes between its rows, and what gpumon says of a GPU that is read live."""
CELLS = {
    "[GPU is lost]": UNREADABLE[15].meaning,
    "[Unknown Error]": UNREADABLE[999].meaning,
    "[GPU requires reset]": UNREADABLE[16].meaning,
    "ERR!": UNREADABLE[999].meaning,
}


def first_line(moments: list[Moment], tool: str) -> str:
    return verdict_line(analysed(TOOLS[tool](moments)))


class TestALogInWhichAGpuIsLost:
    @pytest.mark.parametrize("tool", TOOLS)
    @pytest.mark.parametrize("said", SAID)
    def test_says_it_first_and_then_what_was_before(self, tool: str, said: str) -> None:
        line = first_line([*at_work(60), *[said] * 20], tool)

        assert line.startswith(f"GPU lost: GPU 0 cannot be read: {SAID[said]} (line ")
        assert "Until then healthy: GPU 0 was busy almost all the time." in line

    @pytest.mark.parametrize(
        ("tool", "cell"), [("table", "ERR!"), ("dmon", "ERR!"), *[("csv", cell) for cell in CELLS]]
    )
    def test_says_it_of_a_cell(self, tool: str, cell: str) -> None:
        line = first_line([*at_work(60), *[[cell]] * 20], tool)

        assert line.startswith(f"GPU lost: GPU 0 cannot be read: {CELLS[cell]} (line ")
        assert "Until then healthy" in line

    def test_has_the_line_and_the_time_of_a_row_that_says_it(self) -> None:
        line = first_line([*at_work(60), ["[GPU is lost]"]], "csv")

        assert "(line 62, from 2026-03-02 09:01:00 on)" in line

    def test_has_the_time_of_the_last_row_before_a_line_without_one(self) -> None:
        assert "(line 62, after the last row before it, 2026-03-02 09:00:59)" in first_line(
            [*at_work(60), LOST], "csv"
        )
        assert "after the last row before it, 2026-03-02 09:00:59)" in first_line(
            [*at_work(60), LOST], "table"
        )
        assert "(line 63, after the last row before it, 60 s after the start)" in first_line(
            [*at_work(60), LOST], "dmon"
        )

    def test_has_the_time_above_a_line_that_has_one_there(self) -> None:
        line = first_line([*at_work(60), f"Mon Mar  2 09:07:00 2026\n{LOST}"], "table")

        assert "from 2026-03-02 09:07:00 on)" in line

    def test_has_the_time_at_the_beginning_of_a_line_that_is_no_row(self) -> None:
        line = first_line([*at_work(60), f"2026/03/02 09:07:00.000, {LOST}"], "csv")

        assert "from 2026-03-02 09:07:00 on)" in line

    def test_gives_the_one_remedy_and_none_on_its_time(self) -> None:
        report = analysed(csv([*at_work(5), *[[0]] * 5, *at_work(60), LOST]))

        assert next_line(report) == f"GPU 0: {UNREADABLE[15].advice}."
        assert report.advice == ()

    def test_says_why_where_it_was_read_last(self) -> None:
        report = analysed(table([*at_work(60), LOST]))

        assert why_line(report).startswith("GPU 0: last read at 2026-03-02 09:00:59.")

    def test_tells_it_in_json_as_of_a_live_gpu(self) -> None:
        report = analysed(csv([*at_work(60), *[["[GPU is lost]"]] * 3]))

        document = json.loads(json.dumps(encode_report(report)))
        (gpu,) = document["gpus"]
        (trouble,) = gpu["troubles"]

        assert gpu["error"] == f"{UNREADABLE[15].meaning}: {UNREADABLE[15].advice}"
        assert trouble == {
            "kind": "lost", "severity": "high", "code": None, "reason": None, "count": None,
            "seconds": None, "last_seen_at": "2026-03-02T09:00:59", "line": 62,
            "began_at": "2026-03-02T09:01:00", "ended_at": None,
            "text": f"cannot be read: {UNREADABLE[15].meaning}", "advice": UNREADABLE[15].advice,
        }  # fmt: skip
        assert verdict_line(decode_report(document)) == verdict_line(report)

    def test_keeps_its_seconds_and_its_verdict(self) -> None:
        report = analysed(csv([*at_work(60), *[LOST] * 40]))

        assert only_gpu(report).totals.observed_ns == 60 * 10**9
        assert only_gpu(report).verdict.name is VerdictName.HEALTHY

    def test_speaks_of_no_cell_that_only_has_no_answer(self) -> None:
        report = analysed(csv([*at_work(60), *[["[N/A]"]] * 40]))

        assert only_gpu(report).troubles == ()

    def test_speaks_of_no_line_of_another_program(self) -> None:
        lines = ["RuntimeError: CUDA error: unknown error", "3 devices were found", "lost"]
        report = analysed(csv([*at_work(60), *lines]))

        assert only_gpu(report).troubles == ()


class TestAnErrorBesideAUtilisation:
    CSV = "timestamp, index, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2026/03/02 09:00:{at_s:02}.000, 0, {'[Unknown Error]' if at_s > 29 else '87 W'}, 97 %\n"
        for at_s in range(60)
    )

    def test_is_told_with_its_line_and_time_and_leaves_the_verdict(self) -> None:
        report = analysed(self.CSV)

        assert only_gpu(report).verdict.name is VerdictName.HEALTHY
        assert not only_gpu(report).is_lost
        assert verdict_line(report).startswith(
            "GPU in trouble: GPU 0 answered some queries with ERR! or [Unknown Error] "
            "(first in line 32, 2026-03-02 09:00:30). GPU 0 was busy almost all the time."
        )
        assert next_line(report) == f"GPU 0: {UNREADABLE[999].advice}."

    def test_is_told_of_the_table(self) -> None:
        log = table([*at_work(30), *at_work(30)]).replace("87W / 400W", "ERR! / 400W")

        assert "GPU 0 answered some queries with ERR! or [Unknown Error]" in verdict_line(
            analysed(log)
        )

    def test_is_a_trouble_of_its_own_kind_in_json(self) -> None:
        (trouble,) = encode_report(analysed(self.CSV))["gpus"][0]["troubles"]

        assert (trouble["kind"], trouble["severity"]) == ("error", "moderate")
        assert (trouble["line"], trouble["began_at"]) == (32, "2026-03-02T09:00:30")


class TestALogOfSeveralGpus:
    def test_says_which_of_them_by_its_rows(self) -> None:
        report = analysed(csv([*at_work(60, 2), *[[97, "[GPU is lost]"]] * 30]))

        assert [gpu.is_lost for gpu in report.gpus] == [False, True]
        assert verdict_line(report).startswith("GPU lost: GPU 1 cannot be read: the GPU is lost")
        assert verdict_line(report).endswith("GPU 0 was busy almost all the time.")

    def test_says_which_of_them_by_its_bus_id(self) -> None:
        report = analysed(table([*at_work(60, 2), *[LOST.replace("18:00", "3b:00")] * 9]))

        assert [gpu.is_lost for gpu in report.gpus] == [False, True]

    def test_says_which_of_them_by_its_index(self) -> None:
        said = "Unable to determine the device handle for GPU1: Unknown Error"
        report = analysed(csv([*at_work(60, 2), said]))

        assert [gpu.is_lost for gpu in report.gpus] == [False, True]

    def test_says_which_of_them_by_the_rows_that_go_on(self) -> None:
        moments = [*at_work(60, 2), *[moment for _ in range(30) for moment in (LOST, [97])]]

        assert [gpu.is_lost for gpu in analysed(csv(moments)).gpus] == [False, True]

    def test_says_it_of_all_where_nothing_tells_which(self) -> None:
        line = first_line([*at_work(60, 2), *[LOST] * 9], "csv")

        assert line.startswith(
            "GPU lost: GPUs 0 and 1 cannot be read: nvidia-smi gives up at GPU 0000:18:00.0 (the "
            "GPU is lost) (line 122"
        )

    @pytest.mark.parametrize("tool", TOOLS)
    def test_says_of_all_that_the_driver_fails(self, tool: str) -> None:
        line = first_line([*at_work(60, 2), NO_DRIVER], tool)

        assert line.startswith("GPU lost: GPUs 0 and 1 cannot be read: the NVIDIA driver is not l")


OTHER = LOST.replace("18:00", "41:00")
"""Of a GPU whose bus id none of the builders' logs has."""


class TestAnErrorOfAGpuThatTheLogDoesNotName:
    def test_leaves_a_gpu_alone_whose_rows_go_on(self) -> None:
        report = analysed(csv([*at_work(60, 2), *[Both(OTHER, [97, 97])] * 30]))

        assert [gpu.troubles for gpu in report.gpus] == [(), ()]

    @pytest.mark.parametrize("gpus", [1, 2])
    @pytest.mark.parametrize("tool", TOOLS)
    def test_is_of_a_gpu_that_the_log_does_not_hold(self, tool: str, gpus: int) -> None:
        report = analysed(TOOLS[tool]([*at_work(60, gpus), *[Both(OTHER, [97] * gpus)] * 30]))
        line = verdict_line(report)

        assert line.startswith(
            "GPU lost: GPU 0000:41:00.0, which this log does not hold, cannot be read (the GPU is "
            "lost; line "
        )
        assert not any(gpu.troubles for gpu in report.gpus)
        assert next_line(report) == f"GPU 0000:41:00.0: {UNREADABLE[15].advice}."
        assert verdict_line(decode_report(encode_report(report))) == line

    def test_is_of_the_gpus_alone_whose_rows_end_there(self) -> None:
        moments = [*at_work(60, 4), *[Both(OTHER, [97, 97])] * 30]
        line = first_line(moments, "csv")

        assert line.startswith(
            "GPU lost: GPUs 2 and 3 cannot be read: nvidia-smi gives up at GPU 0000:41:00.0 (the "
            "GPU is lost) (line 242"
        )
        assert "GPUs 0 and 1" in line.partition("line 242")[2]

    def test_is_of_no_gpu_whose_rows_ended_long_before(self) -> None:
        moments = [*at_work(60, 2), *at_work(600), *[Both(OTHER, [97])] * 30]
        report = analysed(csv(moments))

        assert not any(gpu.is_lost for gpu in report.gpus)
        assert "GPU 0000:41:00.0, which this log does not hold" in verdict_line(report)

    def test_is_of_none_of_those_whose_bus_ids_the_log_holds(self) -> None:
        moments = [*at_work(60, 2), *[Both(OTHER, [97])] * 30]
        line = first_line(moments, "table")

        assert line.startswith(
            "GPU lost: GPU 1 cannot be read: nvidia-smi gives up at GPU 0000:41:00.0"
        )

    def test_is_of_the_gpus_that_could_not_be_read_meanwhile(self) -> None:
        report = analysed(csv([*at_work(60, 2), *[OTHER] * 60, *at_work(60, 2)]))

        assert verdict_line(report).startswith(
            "GPU in trouble: GPUs 0 and 1 could not be read for a time, where the log says: "
            "nvidia-smi gives up at GPU 0000:41:00.0 (the GPU is lost)"
        )


class TestAGpuThatComesBack:
    @pytest.mark.parametrize("said", [LOST, "\n".join(MISMATCH), ["[GPU is lost]"]])
    def test_is_told_with_both_times_and_is_not_lost(self, said: Moment) -> None:
        report = analysed(csv([*at_work(60), *[said] * 120, *at_work(60)]))
        line = verdict_line(report)

        assert not only_gpu(report).is_lost
        assert line.startswith("GPU in trouble: GPU 0 could not be read for a time, where the log")
        assert "09:01:00" in line or "after the last row before it, 2026-03-02 09:00:59" in line
        assert "read again 2026-03-02 09:03:00" in line
        assert next_line(report).startswith("GPU 0: ")

    @pytest.mark.parametrize("tool", TOOLS)
    def test_is_told_where_the_log_begins_so(self, tool: str) -> None:
        line = first_line([*[NO_DRIVER] * 5, *at_work(60)], tool)

        assert line.startswith("GPU in trouble: GPU 0 could not be read for a time, where the log")
        assert "before its first row, read again " in line

    @pytest.mark.parametrize("tool", TOOLS)
    def test_is_told_where_the_log_begins_so_for_longer_than_is_looked_ahead(
        self, tool: str
    ) -> None:
        report = analysed("\n".join(MISMATCH * 600) + "\n" + TOOLS[tool](at_work(60)))

        assert "(line 1, before its first row, read again " in verdict_line(report)
        assert only_gpu(report).verdict.name is VerdictName.HEALTHY

    def test_keeps_the_numbers_of_its_lines_then(self) -> None:
        log = "\n".join([NO_DRIVER] * 900) + "\n" + csv([*at_work(60), ["[GPU is lost]"]])

        assert "(line 962, from" in verdict_line(analysed(log))

    def test_and_is_lost_again_is_lost(self) -> None:
        report = analysed(csv([*at_work(60), LOST, *at_work(60), LOST]))

        assert only_gpu(report).is_lost

    def test_is_told_how_often_it_came_back(self) -> None:
        report = analysed(csv([*at_work(60), *[LOST, *at_work(60)] * 3]))

        assert (
            "GPU 0 could not be read 3 times, with readings in between, where the log says: the "
            "GPU is lost (first in line 62, between 2026-03-02 09:00:59 and 2026-03-02 09:03:03)"
        ) in verdict_line(report)

    def test_and_is_lost_again_is_told_with_the_last_time(self) -> None:
        line = first_line([*[*at_work(60), ["[GPU is lost]"]] * 3, ["[GPU is lost]"]], "csv")

        assert line.startswith(
            "GPU lost: GPU 0 cannot be read: the GPU is lost (line 184, from 2026-03-02 09:03:02 "
            "on; 2 times before that). Until then healthy"
        )

    def test_is_told_once_where_only_another_came_back_in_between(self) -> None:
        moments = [*at_work(60, 2), *[[97, "[GPU is lost]"]] * 30, *at_work(30, 2)]
        lines = [moment for _ in range(30) for moment in ("GPU 1: GPU is lost", [97])]
        by_rows, by_lines = (
            analysed(csv(said)) for said in (moments, [*at_work(60, 2), *lines, *at_work(30, 2)])
        )

        for report in (by_rows, by_lines):
            assert "GPU 1 could not be read for a time" in verdict_line(report)

    @pytest.mark.parametrize("said", [NO_DRIVER, LOST])
    def test_is_told_once_where_its_rows_go_on(self, said: str) -> None:
        line = first_line([*at_work(60, 2), *[Both(said, [97, 97])] * 1, *at_work(9, 2)], "table")

        assert "could not be read once, where the log says: " in line

    def test_is_told_in_json(self) -> None:
        report = analysed(csv([*at_work(60), *[["[GPU is lost]"]] * 60, *at_work(60)]))
        (trouble,) = encode_report(report)["gpus"][0]["troubles"]

        assert trouble["began_at"] == "2026-03-02T09:01:00"
        assert trouble["ended_at"] == "2026-03-02T09:02:00"
        assert encode_report(report)["gpus"][0]["error"] is None

    def test_has_one_grave_trouble(self) -> None:
        report = analysed(csv([*at_work(60), LOST, *at_work(60)]))

        assert [(one.kind, one.severity) for one in only_gpu(report).troubles] == [
            (TroubleKind.LOST, Severity.HIGH)
        ]


class TestALogOfNothingElse:
    @pytest.mark.parametrize("said", SAID)
    @pytest.mark.parametrize("times", [1, 700])
    @pytest.mark.parametrize("has_dates", [False, True])
    def test_is_one_sentence_with_its_remedy(
        self, gpumon: Shell, said: str, times: int, has_dates: bool
    ) -> None:
        date = "Mon Mar  2 09:00:00 2026\n" if has_dates else ""
        code, printed, complaint = gpumon(
            "analyze", "-", stdin=(f"{date}{said}\n" * times).encode()
        )

        assert (code, printed) == (1, "")
        assert "no GPU could be read when this was logged" in complaint
        assert SAID[said] in complaint
        assert ("of Mon Mar  2 09:00:00 2026" in complaint) is has_dates
        assert "header" not in complaint
        assert complaint.count("\n") == 1

    @pytest.mark.parametrize("said", SAID)
    def test_is_the_same_under_a_header(self, gpumon: Shell, said: str) -> None:
        log = f"timestamp, index, utilization.gpu [%]\n{said}\n{said}\n"
        code, printed, complaint = gpumon("analyze", "-", stdin=log.encode())

        assert (code, printed) == (1, "")
        assert "line 2: no GPU could be read" in complaint
        assert SAID[said] in complaint

    @pytest.mark.parametrize("cell", CELLS)
    def test_is_the_same_where_rows_say_it(self, gpumon: Shell, cell: str) -> None:
        code, printed, complaint = gpumon("analyze", "-", stdin=csv([[cell]] * 60).encode())

        assert (code, printed) == (1, "")
        assert CELLS[cell] in complaint


def test_a_report_of_a_relative_log_says_how_long_after_its_beginning() -> None:
    report: Report = analysed(dmon([*at_work(60), ["ERR!"]]))

    assert "s after the start on)" in verdict_line(report)
