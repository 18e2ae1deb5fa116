"""Specification of reports on logs that one would be tempted to accuse."""

from __future__ import annotations

import pytest

from gpumon.core.report.report import GpuReport
from gpumon.core.verdict import LikelyCause, Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line, why_line
from tests.builders.logs import LATE, TEMPTING, analysed, smi_log


def only_gpu(rows: list[int]) -> GpuReport:
    (gpu,) = analysed(smi_log(rows)).gpus
    return gpu


@pytest.mark.parametrize("what", TEMPTING)
class TestALogThatOneIsTemptedToAccuse:
    def test_is_not_suspected_of_starving(self, what: str) -> None:
        gpu = only_gpu(TEMPTING[what])

        assert gpu.verdict.name in (VerdictName.PARTIAL, VerdictName.HEALTHY)
        assert gpu.totals.suspected_ns == 0
        assert gpu.verdict.starved_ratio == 0.0

    def test_is_reported_what_is_certain_first(self, what: str) -> None:
        message = verdict_line(analysed(smi_log(TEMPTING[what])))

        assert "of its time in" in message
        assert "batches" not in message


class TestWhatItIsTakenFor:
    @pytest.mark.parametrize("what", ["a desktop", "requests to a language model, by hand"])
    def test_where_people_ask_for_it_is_requests(self, what: str) -> None:
        causes = only_gpu(TEMPTING[what]).verdict.likely_causes

        assert causes is not None
        assert LikelyCause.REQUESTS in causes

    @pytest.mark.parametrize("what", ["a federated client", "six pauses, one a minute"])
    def test_where_steps_are_counted_is_rounds_or_checkpoints(self, what: str) -> None:
        causes = only_gpu(TEMPTING[what]).verdict.likely_causes

        assert causes is not None
        assert {LikelyCause.OTHER_MACHINES, LikelyCause.EVERY_N_STEPS} <= {*causes}

    def test_of_two_pauses_is_nothing(self) -> None:
        gpu = only_gpu(TEMPTING["two pauses and a blip"])

        assert gpu.verdict.likely_causes is None
        assert gpu.verdict.severity is Severity.MODERATE


class TestALateLoader:
    def test_is_found_and_called_probable(self) -> None:
        report = analysed(smi_log(LATE))
        (gpu,) = report.gpus

        assert gpu.verdict.name is VerdictName.STARVATION_SUSPECTED
        assert (gpu.verdict.likely_causes or ())[:1] == (LikelyCause.LATE_INPUT,)
        assert "probably waits for input" in why_line(report)
        assert report.advice[0].speedup_upper_bound is None
