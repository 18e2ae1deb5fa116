"""Logs without tags: which are suspected to wait for input, and what else their pauses may be."""

from __future__ import annotations

import pytest

from gpumon.core.settings.input_model import PRIOR
from gpumon.core.verdict import LikelyCause, Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line, why_line
from tests.builders.logs import LATE, TEMPTING, analysed, only_gpu, smi_log

PROBABLE: dict[str, set[LikelyCause]] = {
    "a desktop": {LikelyCause.REQUESTS},
    "requests to a language model, by hand": {LikelyCause.REQUESTS},
    "a federated client": {LikelyCause.OTHER_MACHINES, LikelyCause.EVERY_N_STEPS},
    "six pauses, one a minute": {LikelyCause.OTHER_MACHINES, LikelyCause.EVERY_N_STEPS},
}


class TestALogWithoutAStarvedRun:
    @pytest.mark.parametrize("name", TEMPTING)
    def test_is_not_suspected_and_has_its_probable_causes(self, name: str) -> None:
        report = analysed(smi_log(TEMPTING[name]))
        gpu, line = only_gpu(report), verdict_line(report)

        assert gpu.verdict.name in (VerdictName.PARTIAL, VerdictName.HEALTHY)
        assert gpu.totals.suspected_ns == 0
        assert gpu.verdict.starved_ratio == 0.0
        assert "of its time in" in line
        assert "batches" not in line
        assert PROBABLE.get(name, set()) <= {*(gpu.verdict.likely_causes or ())}

    def test_has_no_probable_cause_with_two_pauses(self) -> None:
        verdict = only_gpu(analysed(smi_log(TEMPTING["two pauses and a blip"]))).verdict

        assert (verdict.likely_causes, verdict.severity) == (None, Severity.MODERATE)

    def test_has_the_prior_probability_with_equal_pauses(self) -> None:
        verdict = only_gpu(analysed(smi_log(([97] * 5 + [0] * 3) * 40 + [97]))).verdict

        assert verdict.name is VerdictName.PARTIAL
        assert verdict.input_probability == PRIOR
        assert (verdict.likely_causes or ())[:2] == (LikelyCause.OPEN, LikelyCause.LATE_INPUT)


def test_a_log_of_a_slow_loader_is_suspected() -> None:
    report = analysed(smi_log(LATE))
    verdict = only_gpu(report).verdict

    assert verdict.name is VerdictName.STARVATION_SUSPECTED
    assert (verdict.likely_causes or ())[:1] == (LikelyCause.LATE_INPUT,)
    assert "probably waits for input" in why_line(report)
    assert report.advice[0].speedup_upper_bound is None
