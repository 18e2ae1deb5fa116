"""Tests of `gpumon analyze` on logs with driver errors: the first line of the report has them."""

from __future__ import annotations

import json

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.core.device.troubles import TroubleKind
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
    Tick,
    analysed,
    at_work,
    csv,
    only_gpu,
    table,
)
from tests.command_line import Shell

VERSIONS = "libnvidia-ml.so.1 and the loaded driver are of different versions"
NOT_LOADED = "the NVIDIA driver is not loaded"
MESSAGES = {
    LOST: UNREADABLE[15].meaning,
    "GPU is lost.  Reboot the system to recover this GPU": UNREADABLE[15].meaning,
    "Unable to determine the device handle for GPU0000:18:00.0: Unknown Error":
        UNREADABLE[999].meaning,
    "\n".join(MISMATCH): VERSIONS,
    "Failed to initialize NVML: Unknown Error": "NVML answers with an unknown error",
    NO_DRIVER: NOT_LOADED,
    NO_DRIVER.replace("the latest ", "the latest\n"): NOT_LOADED,
    NO_DEVICES: "the NVIDIA driver lists no GPU that can be read",
}  # fmt: skip
"""What a tool prints between its rows, and how gpumon describes a GPU in that state."""
CELLS = {
    "[GPU is lost]": UNREADABLE[15].meaning,
    "[Unknown Error]": UNREADABLE[999].meaning,
    "[GPU requires reset]": UNREADABLE[16].meaning,
    "ERR!": UNREADABLE[999].meaning,
}
OTHER = LOST.replace("18:00", "41:00")
"""An error of a GPU whose bus id is in no row."""


def first_line(ticks: list[Tick], tool: str = "csv") -> str:
    return verdict_line(analysed(TOOLS[tool](ticks)))


class TestALostGpu:
    @pytest.mark.parametrize("tool", TOOLS)
    @pytest.mark.parametrize("message", MESSAGES)
    def test_is_reported_first_and_then_the_time_before(self, tool: str, message: str) -> None:
        line = first_line([*at_work(60), *[message] * 20], tool)

        assert line.startswith(f"GPU lost: GPU 0 cannot be read: {MESSAGES[message]} (line ")
        assert "Before that: healthy: GPU 0 was busy almost all the time." in line

    @pytest.mark.parametrize(
        ("tool", "cell"), [("table", "ERR!"), ("dmon", "ERR!"), *[("csv", cell) for cell in CELLS]]
    )
    def test_is_reported_from_its_cell(self, tool: str, cell: str) -> None:
        line = first_line([*at_work(60), *[[cell]] * 20], tool)

        assert line.startswith(f"GPU lost: GPU 0 cannot be read: {CELLS[cell]} (line ")
        assert "Before that: healthy" in line

    @pytest.mark.parametrize(
        ("tool", "newest", "when"),
        [
            ("csv", ["[GPU is lost]"], "(line 62, from 2026-03-02 09:01:00 on)"),
            ("csv", LOST, "(line 62, after the last row before it, 2026-03-02 09:00:59)"),
            ("table", LOST, "after the last row before it, 2026-03-02 09:00:59)"),
            ("dmon", LOST, "(line 63, after the last row before it, 60 s after the start)"),
            ("dmon", ["ERR!"], "s after the start on)"),
            ("table", f"Mon Mar  2 09:07:00 2026\n{LOST}", "from 2026-03-02 09:07:00 on)"),
            ("csv", f"2026/03/02 09:07:00.000, {LOST}", "from 2026-03-02 09:07:00 on)"),
        ],
    )
    def test_has_the_line_and_time_of_the_error(self, tool: str, newest: Tick, when: str) -> None:
        assert when in first_line([*at_work(60), newest], tool)

    def test_has_one_advice_and_keeps_its_time_and_verdict(self) -> None:
        report = analysed(csv([*at_work(5), *[[0]] * 5, *at_work(60), *[LOST] * 40]))

        assert next_line(report) == f"GPU 0: {UNREADABLE[15].advice}."
        assert report.advice == ()
        assert why_line(report).startswith("GPU 0: last read at 2026-03-02 09:01:09.")
        assert only_gpu(report).totals.observed_ns == 70 * 10**9
        assert only_gpu(report).verdict.name is VerdictName.HEALTHY

    def test_is_in_json_as_a_live_one(self) -> None:
        report = analysed(csv([*at_work(60), *[["[GPU is lost]"]] * 3]))

        document = json.loads(json.dumps(encode_report(report)))
        (gpu,) = document["gpus"]

        assert gpu["error"] == f"{UNREADABLE[15].meaning}: {UNREADABLE[15].advice}"
        assert gpu["unusable_samples"] == 0, "these rows are in its troubles"
        assert gpu["troubles"] == [
            {
                "kind": "lost", "severity": "high", "code": None, "reason": None, "count": None,
                "seconds": None, "last_seen_at": "2026-03-02T09:00:59", "line": 62,
                "began_at": "2026-03-02T09:01:00", "ended_at": None,
                "text": f"cannot be read: {UNREADABLE[15].meaning}",
                "advice": UNREADABLE[15].advice,
            }
        ]  # fmt: skip
        assert verdict_line(decode_report(document)) == verdict_line(report)

    @pytest.mark.parametrize(
        "ticks",
        [
            [["[N/A]"]] * 40,
            ["RuntimeError: CUDA error: unknown error", "3 devices were found", "lost"],
        ],
        ids=["no answer", "another program"],
    )
    def test_is_not_reported_without_an_error_of_the_driver(self, ticks: list[Tick]) -> None:
        assert only_gpu(analysed(csv([*at_work(60), *ticks]))).troubles == ()


class TestAnErrorInAnotherCell:
    CSV = "timestamp, index, power.draw [W], utilization.gpu [%]\n" + "".join(
        f"2026/03/02 09:00:{at_s:02}.000, 0, {'[Unknown Error]' if at_s > 29 else '87 W'}, 97 %\n"
        for at_s in range(60)
    )
    TABLE = table(at_work(60)).replace("87W / 400W", "ERR! / 400W")

    def test_is_a_moderate_trouble_and_keeps_the_verdict(self) -> None:
        report = analysed(self.CSV)
        (trouble,) = encode_report(report)["gpus"][0]["troubles"]

        assert only_gpu(report).verdict.name is VerdictName.HEALTHY
        assert not only_gpu(report).is_lost
        assert verdict_line(report).startswith(
            "GPU in trouble: GPU 0 answered some queries with ERR! or [Unknown Error] "
            "(first in line 32, 2026-03-02 09:00:30). GPU 0 was busy almost all the time."
        )
        assert next_line(report) == f"GPU 0: {UNREADABLE[999].advice}."
        assert (trouble["kind"], trouble["severity"]) == ("error", "moderate")
        assert (trouble["line"], trouble["began_at"]) == (32, "2026-03-02T09:00:30")

    def test_is_found_in_the_table_too(self) -> None:
        assert "answered some queries with ERR! or [Unknown Error]" in verdict_line(
            analysed(self.TABLE)
        )


ALTERNATING = [tick for _ in range(30) for tick in (LOST, [97])]


class TestALogOfSeveralGpus:
    @pytest.mark.parametrize(
        ("tool", "ticks"),
        [
            ("csv", [[97, "[GPU is lost]"]] * 30),
            ("table", [LOST.replace("18:00", "3b:00")] * 9),
            ("csv", ["Unable to determine the device handle for GPU1: Unknown Error"]),
            ("csv", ALTERNATING),
        ],
        ids=["cell", "bus id", "index", "rows that go on"],
    )
    def test_shows_which_of_them_is_lost(self, tool: str, ticks: list[Tick]) -> None:
        report = analysed(TOOLS[tool]([*at_work(60, 2), *ticks]))

        assert [gpu.is_lost for gpu in report.gpus] == [False, True]
        assert verdict_line(report).startswith("GPU lost: GPU 1 cannot be read: ")
        assert verdict_line(report).endswith("GPU 0 was busy almost all the time.")

    def test_reports_all_if_nothing_shows_which(self) -> None:
        assert first_line([*at_work(60, 2), *[LOST] * 9]).startswith(
            "GPU lost: GPUs 0 and 1 cannot be read: nvidia-smi gives up at GPU 0000:18:00.0 (the "
            "GPU is lost) (line 122"
        )

    @pytest.mark.parametrize("tool", TOOLS)
    def test_reports_all_if_the_driver_fails(self, tool: str) -> None:
        line = first_line([*at_work(60, 2), NO_DRIVER], tool)

        assert line.startswith("GPU lost: GPUs 0 and 1 cannot be read: the NVIDIA driver is not l")


class TestAnErrorOfAGpuWithoutRows:
    @pytest.mark.parametrize("gpus", [1, 2])
    @pytest.mark.parametrize("tool", TOOLS)
    def test_is_of_no_gpu_whose_rows_go_on(self, tool: str, gpus: int) -> None:
        report = analysed(TOOLS[tool]([*at_work(60, gpus), *[Both(OTHER, [97] * gpus)] * 30]))
        line = verdict_line(report)

        assert line.startswith(
            "GPU lost: GPU 0000:41:00.0, which this log does not hold, cannot be read (the GPU is "
            "lost; line "
        )
        assert not any(gpu.troubles for gpu in report.gpus)
        assert next_line(report) == f"GPU 0000:41:00.0: {UNREADABLE[15].advice}."
        assert verdict_line(decode_report(encode_report(report))) == line

    @pytest.mark.parametrize(
        ("tool", "ticks", "lost"),
        [
            ("csv", [*at_work(60, 4), *[Both(OTHER, [97, 97])] * 30], [2, 3]),
            ("table", [*at_work(60, 2), *[Both(OTHER, [97])] * 30], [1]),
            ("csv", [*at_work(60, 2), *at_work(600), *[Both(OTHER, [97])] * 30], []),
        ],
        ids=["their rows end there", "their bus ids are known", "their rows ended long before"],
    )
    def test_is_of_gpus_whose_rows_end_with_it(
        self, tool: str, ticks: list[Tick], lost: list[int]
    ) -> None:
        report = analysed(TOOLS[tool](ticks))

        assert [at for at, gpu in enumerate(report.gpus) if gpu.is_lost] == lost
        where = (
            "nvidia-smi gives up at GPU 0000:41:00.0" if lost else "which this log does not hold"
        )
        assert where in verdict_line(report)

    def test_is_of_gpus_that_were_not_read_meanwhile(self) -> None:
        assert first_line([*at_work(60, 2), *[OTHER] * 60, *at_work(60, 2)]).startswith(
            "GPU in trouble: GPUs 0 and 1 could not be read for a time, where the log says: "
            "nvidia-smi gives up at GPU 0000:41:00.0 (the GPU is lost)"
        )


class TestAGpuThatComesBack:
    @pytest.mark.parametrize("tick", [LOST, "\n".join(MISMATCH), ["[GPU is lost]"]])
    def test_is_in_trouble_with_both_times_and_is_not_lost(self, tick: Tick) -> None:
        report = analysed(csv([*at_work(60), *[tick] * 120, *at_work(60)]))
        line = verdict_line(report)

        assert [(one.kind, one.severity) for one in only_gpu(report).troubles] == [
            (TroubleKind.LOST, Severity.HIGH)
        ]
        assert not only_gpu(report).is_lost
        assert line.startswith("GPU in trouble: GPU 0 could not be read for a time, where the log")
        assert "09:01:00" in line or "after the last row before it, 2026-03-02 09:00:59" in line
        assert "read again 2026-03-02 09:03:00" in line

    def test_is_in_json_with_both_times(self) -> None:
        report = analysed(csv([*at_work(60), *[["[GPU is lost]"]] * 60, *at_work(60)]))
        (trouble,) = encode_report(report)["gpus"][0]["troubles"]

        assert trouble["began_at"] == "2026-03-02T09:01:00"
        assert trouble["ended_at"] == "2026-03-02T09:02:00"
        assert encode_report(report)["gpus"][0]["error"] is None

    @pytest.mark.parametrize("tool", TOOLS)
    @pytest.mark.parametrize("times", [5, 1_200])
    def test_may_be_lost_at_the_start_for_longer_than_the_head(self, tool: str, times: int) -> None:
        report = analysed("\n".join([NO_DRIVER] * times) + "\n" + TOOLS[tool](at_work(60)))

        assert "(line 1, before its first row, read again " in verdict_line(report)
        assert only_gpu(report).verdict.name is VerdictName.HEALTHY

    def test_keeps_the_numbers_of_its_lines_then(self) -> None:
        log = "\n".join([NO_DRIVER] * 900) + "\n" + csv([*at_work(60), ["[GPU is lost]"]])

        assert "(line 962, from" in verdict_line(analysed(log))

    def test_several_times_is_reported_with_their_number(self) -> None:
        assert (
            "GPU 0 could not be read 3 times, with readings in between, where the log says: the "
            "GPU is lost (first in line 62, between 2026-03-02 09:00:59 and 2026-03-02 09:03:03)"
        ) in first_line([*at_work(60), *[LOST, *at_work(60)] * 3])

    def test_and_is_lost_again_has_the_last_time(self) -> None:
        line = first_line([*[*at_work(60), ["[GPU is lost]"]] * 3, ["[GPU is lost]"]])

        assert line.startswith(
            "GPU lost: GPU 0 cannot be read: the GPU is lost (line 184, from 2026-03-02 09:03:02 "
            "on; 2 times before that). Before that: healthy"
        )

    @pytest.mark.parametrize(
        "ticks", [[[97, "[GPU is lost]"]] * 30, ["GPU 1: GPU is lost", [97]] * 30]
    )
    def test_counts_once_although_another_was_read_in_between(self, ticks: list[Tick]) -> None:
        line = first_line([*at_work(60, 2), *ticks, *at_work(30, 2)])

        assert "GPU 1 could not be read for a time" in line

    def test_counts_once_if_its_rows_go_on(self) -> None:
        line = first_line([*at_work(60, 2), Both(NO_DRIVER, [97, 97]), *at_work(9, 2)], "table")

        assert "could not be read once, where the log says: " in line


class TestALogOfOnlyErrors:
    @pytest.mark.parametrize("message", MESSAGES)
    @pytest.mark.parametrize(("times", "date"), [(1, ""), (700, "Mon Mar  2 09:00:00 2026\n")])
    def test_is_refused_in_one_sentence_with_advice(
        self, gpumon: Shell, message: str, times: int, date: str
    ) -> None:
        ended = gpumon("analyze", "-", stdin=(f"{date}{message}\n" * times).encode())

        assert (ended.code, ended.out) == (1, "")
        assert ended.is_refused_in_a_sentence
        assert "no GPU could be read when this was logged" in ended.err
        assert MESSAGES[message] in ended.err
        assert ("of Mon Mar  2 09:00:00 2026" in ended.err) is bool(date)

    @pytest.mark.parametrize("message", MESSAGES)
    def test_is_refused_under_a_header_too(self, gpumon: Shell, message: str) -> None:
        log = f"timestamp, index, utilization.gpu [%]\n{message}\n{message}\n"
        ended = gpumon("analyze", "-", stdin=log.encode())

        assert (ended.code, ended.out) == (1, "")
        assert "line 2: no GPU could be read" in ended.err
        assert MESSAGES[message] in ended.err

    @pytest.mark.parametrize("cell", CELLS)
    def test_is_refused_if_all_cells_have_one(self, gpumon: Shell, cell: str) -> None:
        ended = gpumon("analyze", "-", stdin=csv([[cell]] * 60).encode())

        assert (ended.code, ended.out) == (1, "")
        assert CELLS[cell] in ended.err
