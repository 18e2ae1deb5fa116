"""Each sentence of ``docs/driver-trouble.md`` is in the first line of a report on that fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from gpumon.core.device.driver_codes import OF_PROGRAMS
from gpumon.core.report.report import Report
from gpumon.core.state import CollectorState
from gpumon.core.view.status import Tone
from gpumon.errors import SourceUnavailableError
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.monitor_view import headline_of
from gpumon.outlets.text.report_lines import next_line
from gpumon.pipeline.state_report import report_of
from tests.builders.driver import DriverStory
from tests.builders.driver_faults import (
    BOTH,
    BY_INDEX,
    DRAIN,
    FIRST,
    INIT,
    POWER,
    RATES,
    REPLACED,
    SECOND,
    Change,
    everything_failing,
    failing,
    listing,
    losing,
)
from tests.builders.state import monitor_state
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.programs import ROOT

Begin = Callable[[FakeNvml], DriverStory]
PAGE: Final = (ROOT / "docs" / "driver-trouble.md").read_text(encoding="utf-8")
INSUFFICIENT_POWER, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, TOO_OLD = 8, 9, 12, 13

OF_THE_DRIVER: Final[dict[str, Change]] = {
    "libnvidia-ml.so.1 was not found": failing(LIBRARY_NOT_FOUND, INIT),
    "the NVIDIA driver is not loaded": failing(DRIVER_NOT_LOADED, INIT),
    "libnvidia-ml.so.1 and the loaded driver are of different versions": failing(
        codes.VERSION_MISMATCH, INIT
    ),
    "NVML answers with an unknown error": everything_failing(codes.UNKNOWN),
    "the operating system blocks the GPUs": everything_failing(codes.OPERATING_SYSTEM),
    "this user may not use the NVIDIA driver": failing(codes.NO_PERMISSION, INIT),
    "this NVIDIA driver is too old for gpumon": failing(TOO_OLD, INIT),
    "the NVIDIA driver lists no GPU that can be read": listing(),
    "every GPU is lost": losing(codes.GPU_IS_LOST, *BOTH),
    "every GPU needs a reset": losing(codes.RESET_REQUIRED, *BOTH),
    "a GPU has too little external power": failing(INSUFFICIENT_POWER, BY_INDEX),
}
"""Faults with which no GPU can be read."""
OF_A_GPU: Final[dict[str, Change]] = {
    "the GPU is lost": losing(codes.GPU_IS_LOST, FIRST),
    "the GPU needs a reset": losing(codes.RESET_REQUIRED, FIRST),
    "the GPU answers with an unknown error": losing(codes.UNKNOWN, FIRST),
    "the operating system blocks the GPU": losing(codes.OPERATING_SYSTEM, FIRST),
    "the GPU has too little external power": losing(INSUFFICIENT_POWER, FIRST),
    "this user may not read the GPU": failing(codes.NO_PERMISSION, DRAIN, RATES, POWER, gpu=FIRST),
    "vanished: the driver no longer lists it": listing(SECOND),
}
ELSEWHERE: Final = {
    "the NVIDIA driver was replaced, and this process still has the library of the old one",
    "the driver has not answered yet",
    "gpumon needs the module pynvml of nvidia-ml-py",
}
"""Tested below and in ``unit/sources/nvml/test_pynvml_module.py``."""


def documented() -> Iterator[str]:
    """The sentences in the rows of the first two tables."""
    for line in PAGE.partition("## One field of a GPU")[0].splitlines():
        cells = line.split(" | ")
        if len(cells) == 3:
            yield from re.findall('"(.+?)"', cells[1])


def never_read(sentence: str) -> Report:
    """The report of a daemon whose source has failed from the start."""
    failed = CollectorState("nvml", False, 0.0, 1, sentence)
    return report_of(monitor_state()._replace(gpus=(), runs=(), collectors=(failed,)))


def test_each_row_of_the_page_has_a_fault() -> None:
    assert {*documented()} == {*OF_THE_DRIVER, *OF_A_GPU, *ELSEWHERE}


class TestADriverThatFails:
    @pytest.mark.parametrize("sentence", OF_THE_DRIVER)
    def test_is_in_the_first_line_of_a_waiting_daemon(
        self, two_busy: FakeNvml, begin: Begin, sentence: str
    ) -> None:
        OF_THE_DRIVER[sentence](two_busy)
        with pytest.raises(SourceUnavailableError) as refused:
            begin(two_busy)
        what, _, todo = str(refused.value).partition(": ")

        report = never_read(str(refused.value))

        assert what == sentence
        assert verdict_line(report) == f"no GPU can be read: {sentence}."
        assert next_line(report) == f"{todo.rstrip('.')}."
        assert headline_of(report).tone is Tone.BAD

    def test_is_named_for_each_gpu_that_was_read_before(self, story: DriverStory) -> None:
        REPLACED.begin(story.fake)
        story.tick(12)

        headline = verdict_line(report_of(story.state))

        (sentence,) = [one for one in ELSEWHERE if "was replaced" in one]
        assert headline.startswith(f"GPU lost: GPUs 0 and 1 cannot be read: {sentence}.")
        REPLACED.end(story.fake)


class TestAGpuThatFails:
    @pytest.mark.parametrize("sentence", OF_A_GPU)
    def test_is_in_the_first_line_of_a_report_on_all_gpus(
        self, story: DriverStory, sentence: str
    ) -> None:
        OF_A_GPU[sentence](story.fake)
        story.tick(12)
        report = report_of(story.state)

        first = verdict_line(report)

        assert re.match(rf"GPU lost: GPU 0\S* ?.*{re.escape(sentence)}", first)
        lost = next(gpu for gpu in report.gpus if gpu.is_lost)
        assert next_line(report).endswith(f": {lost.troubles[0].advice}.")
        assert report.advice == ()


class TestTheAlertOnXids:
    def test_leaves_out_the_xids_of_programs(self) -> None:
        rules = (ROOT / "prometheus" / "rules.yml").read_text(encoding="utf-8")
        left_out = {*re.findall(r'xid!~"([\d|]+)"', rules)}

        assert left_out == {"|".join(map(str, sorted(OF_PROGRAMS)))}
