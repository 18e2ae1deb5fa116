"""Rules of verdicts: a workload where each applies, and a similar one where it does not.

Whether a loader is late is a fact of each workload's model. The detector sees the driver's windows,
and the tags of a run where it has some.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest

from gpumon.core.verdict import VerdictName
from tests.truth.rules.small_workloads import late_every, training
from tests.truth.rules.watching import verdict_in_log, verdict_with_tags

WAVES = training(late_ms=late_every(300, 3_000))
"""Every half minute a batch is late: 7 % starved."""
SELDOM = training(late_ms=late_every(300, 1_000))
"""As often, and 2.5 % starved."""
CHECKPOINTS = training(hold_every=300, hold_ms=3_000.0)
"""Every half minute a checkpoint of three seconds: 8 % lost, nothing starved."""
CHECKPOINTS_OF_3_PERCENT = training(hold_every=300, hold_ms=1_000.0)
LATE_AND_CHECKPOINTS = training(hold_every=300, hold_ms=3_000.0, late_ms=late_every(250, 3_000))
SHORT_STALLS = training(cost_ms=120)
"""16 % starved, in stalls that no driver shows."""
FLAT = training(cost_ms=160)
"""37 % lost, in stalls that no driver shows."""
HOUR = training(seconds=3_600, begins_s=0)
"""An hour of work."""
NEXT_BATCH_MISSING = training(steps=300, seconds=62, late_ms={200: 42_000})
VARYING = training(
    seconds=400,
    late_ms=dict.fromkeys(
        itertools.accumulate(itertools.islice(itertools.cycle((30, 50, 80)), 40)), 4_000
    ),
)
"""Many pauses of a late loader, after bursts that vary."""
THREE_PAUSES = training(late_ms={300: 6_000, 500: 6_000, 700: 6_000}, seconds=100)
TWO_PAUSES = training(late_ms={100: 9_000, 200: 9_000}, seconds=100)
TWO_LONG_PAUSES = training(late_ms={100: 30_000, 200: 30_000}, seconds=100)

log, tags = partial(partial, verdict_in_log), partial(partial, verdict_with_tags)


class Cases(NamedTuple):
    """Observations that must get a verdict, and similar ones that must not, by what they are."""

    applies: Mapping[str, Callable[[], VerdictName]]
    does_not: Mapping[str, Callable[[], VerdictName]]


RULES = {
    VerdictName.HANGING: Cases(
        {"no batch for 40 s": tags(NEXT_BATCH_MISSING, for_ms=61_000)},
        {
            "no batch for 25 s": tags(NEXT_BATCH_MISSING, for_ms=45_000),
            "the batch has come": tags(training(steps=400, seconds=80, late_ms={200: 35_000})),
        },
    ),
    VerdictName.TOO_FEW_SAMPLES: Cases(
        {
            "six samples in an hour": log(HOUR, period_s=600),
            "a log of 19 s": log(training(seconds=19, begins_s=0)),
        },
        {
            "a sample a minute": log(HOUR, period_s=60),
            "a log of 25 s": log(training(seconds=25, begins_s=0)),
            "19 s observed live": tags(training(seconds=19, begins_s=0)),
        },
    ),
    VerdictName.NOT_IN_USE: Cases(
        {"8 s of work in 2 min": log(training(steps=80, seconds=120))},
        {"12 s of work in 2 min": log(training(steps=120, seconds=120))},
    ),
    VerdictName.TOO_SHORT_TO_JUDGE: Cases(
        {
            "8 s of work in 1 min": log(training(steps=80, seconds=60)),
            "most of its time waiting for the first batch": tags(
                training(steps=80, seconds=60, late_ms={0: 30_000})
            ),
        },
        {"12 s of work in 1 min": log(training(steps=120, seconds=60))},
    ),
    VerdictName.HEALTHY: Cases(
        {
            "2.5 % starved, in a log": log(SELDOM),
            "2.5 % starved, with tags": tags(SELDOM),
            "one unexplained break of 20 s": log(
                training(hold_every=900, hold_ms=20_000.0, steps=1_500)
            ),
        },
        {"7 % starved, in a log": log(WAVES), "7 % starved, with tags": tags(WAVES)},
    ),
    VerdictName.STARVED: Cases(
        {
            "tags prove that a loader is late": tags(WAVES),
            "stalls too short for the driver": tags(SHORT_STALLS),
        },
        {
            "as much lost to checkpoints": tags(CHECKPOINTS),
            "without tags": log(WAVES),
        },
    ),
    VerdictName.STALLED: Cases(
        {"tags prove that checkpoints cost 8 %": tags(CHECKPOINTS)},
        {
            "checkpoints cost 3 %": tags(CHECKPOINTS_OF_3_PERCENT),
            "without tags": log(CHECKPOINTS),
            "a loader is late, too": tags(LATE_AND_CHECKPOINTS),
        },
    ),
    VerdictName.STARVATION_SUSPECTED: Cases(
        {"many pauses after bursts that vary": log(VARYING)},
        {
            "three pauses": log(THREE_PAUSES),
            "two pauses": log(TWO_PAUSES),
            "two long pauses": log(TWO_LONG_PAUSES),
        },
    ),
    VerdictName.PARTIAL: Cases(
        {"a flat level that no tag explains": log(FLAT), "three pauses": log(THREE_PAUSES)},
        {
            "a level that loses 4 %": log(training(cost_ms=103, depth=0)),
            "tags explain it": tags(FLAT),
        },
    ),
}


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(verdict, observe, id=f"{verdict.value}: {name}")
        for verdict, one in RULES.items()
        for name, observe in getattr(one, kind).items()
    ]


@pytest.mark.parametrize(("verdict", "observe"), cases("applies"))
def test_a_verdict_applies(verdict: VerdictName, observe: Callable[[], VerdictName]) -> None:
    assert observe() is verdict


@pytest.mark.parametrize(("verdict", "observe"), cases("does_not"))
def test_a_verdict_does_not_apply(verdict: VerdictName, observe: Callable[[], VerdictName]) -> None:
    assert observe() is not verdict


def test_the_workloads_lose_what_their_descriptions_say() -> None:
    starved = [round(100 * one.gpus[0].starved_ratio) for one in (WAVES, SELDOM, SHORT_STALLS)]
    lost = [
        round(100 * one.gpus[0].lost_ms / one.gpus[0].in_use_ms)
        for one in (CHECKPOINTS, CHECKPOINTS_OF_3_PERCENT, FLAT)
    ]

    assert (starved, lost) == ([7, 2, 16], [8, 3, 37])
    assert CHECKPOINTS.gpus[0].starved_ms == 0
    assert LATE_AND_CHECKPOINTS.is_starved
    assert len(VARYING.gpus[0].starved) > 30
    assert len(THREE_PAUSES.gpus[0].starved) == 3
    assert [len(one.gpus[0].starved) for one in (TWO_PAUSES, TWO_LONG_PAUSES)] == [2, 2]
