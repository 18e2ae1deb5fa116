"""Specification of sentences with numbers, such as a training prints: refused, never guessed."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import ratios, rows

REFUSED = r"lines with words \(.*\) and no header: nothing says which number.*--column"


def lines(pattern: str, count: int = 300) -> str:
    return rows(
        *(
            pattern.format(
                stamp=f"2026-05-11 14:{at // 60:02d}:{at % 60:02d}",
                loss=f"{0.742 - at * 0.001:.3f}",
                step=at * 10,
                busy=96 - at % 3,
            )
            for at in range(count)
        )
    )


class TestLinesOfWordsWithoutAHeader:
    @pytest.mark.parametrize(
        "pattern",
        [
            "{stamp} INFO step {step} loss {loss} gpu_util={busy}% mem=12000MiB",
            "epoch {step} loss {loss} acc {busy}%",
            "[{stamp}] INFO step={step} loss={loss} util {busy} %",
            "{stamp},INFO,step,{step},loss,{loss}",
        ],
    )
    def test_are_refused_with_what_is_missing(self, pattern: str) -> None:
        with pytest.raises(UnreadableLogError, match=REFUSED):
            ratios(lines(pattern))

    def test_are_read_once_the_user_says_which_number_it_is(self) -> None:
        told = LogOptions(columns={"utilization.gpu": 4})

        assert ratios(lines("{stamp} util is {busy} %"), told)[:3] == [0.96, 0.95, 0.94]


class TestWordsOfALogOfGpus:
    @pytest.mark.parametrize(
        "pattern",
        [
            "{stamp} {busy} %",
            "{stamp} NVIDIA A100 {busy} %",
            "{stamp} Tesla T4 P0 Enabled {busy} %",
            "{stamp}, Not Active, Default, {busy}",
            "{stamp}, cerberus, {busy} %",
        ],
    )
    def test_are_no_sentence(self, pattern: str) -> None:
        assert ratios(lines(pattern))[:3] == [0.96, 0.95, 0.94]
