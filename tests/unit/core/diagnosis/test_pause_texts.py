"""Specification of the sentences on pauses that nothing explains."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.diagnosis.pause_texts import likely_text
from gpumon.core.diagnosis.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.verdict import LikelyCause, Verdict
from tests.builders.report import gpu, with_totals

LATE, OPEN = LikelyCause.LATE_INPUT, LikelyCause.OPEN
SAVES = (LikelyCause.EVERY_N_STEPS, LikelyCause.OTHER_MACHINES)
ROUNDS = SAVES[::-1]
REQUESTS = (LikelyCause.REQUESTS,)


def pausing(probability: float, causes: tuple[LikelyCause, ...]) -> Verdict:
    one = with_totals(
        gpu(40, {IdleCause.UNKNOWN: 20}, suspected_s=20, pauses=9),
        suspicion=Suspicion(probability, causes),
    )
    return judge(one.totals)


@pytest.mark.parametrize(
    ("probability", "causes", "said"),
    [
        (
            0.97,
            (LATE, *SAVES),
            "are probably waits for late batches (97 %); else regular checkpoints or",
        ),
        (
            0.5,
            (LATE, *SAVES),
            "are probably waits for late batches (50 %); else regular checkpoints or",
        ),
        (0.35, (OPEN, LATE, *ROUNDS), "does not show what they are: waits for late batches,"),
        (0.2, (OPEN, LATE, *REQUESTS), "late batches, or requests to a server or a notebook"),
        (0.1, SAVES, "(10 %) than like regular checkpoints or evaluations, or waits for"),
        (0.1, REQUESTS, "than like requests to a server or a notebook."),
        (0.04, ROUNDS, "less like waits for late batches (4 %) than"),
    ],
)
def test_the_probability_is_said_in_words_and_as_a_figure(
    probability: float, causes: tuple[LikelyCause, ...], said: str
) -> None:
    assert said in likely_text(pausing(probability, causes), "")


@pytest.mark.parametrize(
    ("probability", "percent"),
    [(0.6999, "69 %"), (0.7, "70 %"), (0.29, "29 %"), (0.004, "below 1 %"), (0.999, "99 %")],
)
def test_a_probability_is_rounded_down(probability: float, percent: str) -> None:
    assert f"({percent})" in likely_text(pausing(probability, (LATE, *SAVES)), "")


@pytest.mark.parametrize(
    ("probability", "causes", "look"),
    [
        (
            0.8,
            (LATE, *SAVES),
            "If the job wrote a checkpoint, ran an evaluation or waited for",
        ),
        (
            0.35,
            (OPEN, LATE, *REQUESTS),
            "If no request came in then, nobody needed the GPU; otherwise",
        ),
        (0.1, SAVES, "If the job wrote a checkpoint, ran an evaluation or waited for other"),
        (0.1, REQUESTS, "If no request came in then, nobody needed the GPU."),
    ],
)
def test_one_look_settles_it(
    probability: float, causes: tuple[LikelyCause, ...], look: str
) -> None:
    text = likely_text(pausing(probability, causes), "at 09:31:05 and 09:33:12")

    assert f"The last ones began at 09:31:05 and 09:33:12. {look}" in text


def test_nothing_is_said_where_the_pauses_are_too_few() -> None:
    assert likely_text(gpu(40, {IdleCause.UNKNOWN: 20}, pauses=2).verdict, "09:31:05") == ""


@pytest.mark.parametrize("probability", [0.01, 0.2, 0.35, 0.6, 0.99])
def test_no_words_are_surer_than_probably(probability: float) -> None:
    text = likely_text(pausing(probability, (LATE, *SAVES)), "09:31:05")

    assert "very " not in text.replace("every ", "")
    assert "worker" not in text
    assert "times as fast" not in text
