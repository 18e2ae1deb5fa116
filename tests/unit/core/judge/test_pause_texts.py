"""Specification of what pauses that nothing explains are said to be, and how probably."""

from __future__ import annotations

import pytest

from gpumon.core.judge.pause_texts import likely_text
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.time.suspicion import Suspicion
from gpumon.core.verdict import LikelyCause, Verdict
from tests.builders_report import gpu, with_totals

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
        (0.97, (LATE,), "are very probably waits for late batches (97 %)"),
        (0.7, (LATE,), "are probably waits for late batches (70 %)"),
        (0.52, (LATE, *SAVES), "are more likely than not waits for late batches (52 %); else che"),
        (0.41, (OPEN, LATE, *ROUNDS), "may be waits for late batches (41 %), or rounds of other"),
        (0.2, SAVES, "look like checkpoints or evaluations every so many steps, or rounds"),
        (0.2, REQUESTS, "look like requests to a server, or cells of a notebook; waits for late"),
        (0.2, SAVES, "waits for late batches are unlikely (20 %)"),
        (0.04, ROUNDS, "waits for late batches are very unlikely (4 %)"),
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
        (0.8, (LATE,), "if no checkpoint was written and nothing evaluated then, batches were"),
        (0.1, SAVES, "if a checkpoint was written, something evaluated or other machines waited"),
        (0.1, REQUESTS, "if nobody asked for anything then, it is that"),
    ],
)
def test_one_look_settles_it(
    probability: float, causes: tuple[LikelyCause, ...], look: str
) -> None:
    text = likely_text(pausing(probability, causes), "09:31:05 and 09:33:12")

    assert f"The last began at 09:31:05 and 09:33:12: {look}" in text


def test_nothing_is_said_where_the_pauses_are_too_few() -> None:
    assert likely_text(gpu(40, {IdleCause.UNKNOWN: 20}, pauses=2).verdict, "09:31:05") == ""
