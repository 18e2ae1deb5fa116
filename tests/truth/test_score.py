"""A short version of ``python -m tests.truth.score``: what must hold of every workload."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.truth.score.__main__ import false_alarms
from tests.truth.score.tally import (
    BARE,
    DAEMON,
    LOG,
    MEAN,
    SAGEMAKER,
    TAGGED,
    Row,
    Tallies,
    Work,
    evaluate_one,
    over,
)
from tests.truth.workloads import DEVELOPMENT_SEEDS, KINDS, UNTAGGED

HOURS = 0.25
SEED = DEVELOPMENT_SEEDS[3]
VISIBLE = [name for name, kind in KINDS.items() if kind.is_visible]
AT_A_SECOND = Row(LOG, 1.0)
TRAINING_KINDS = [name for name in KINDS if name not in UNTAGGED]
WATCHED = list(KINDS) if os.environ.get("GPUMON_WHOLE_TABLE") else [*KINDS][::3]
"""The kinds that daemons watch: a third of them in CI, all in ``make truth``."""
INDISTINGUISHABLE = {"rounds", "checkpoints", "many_gpus", "validation"}
"""Idle in the pattern of starvation, for another cause."""


def watched(kinds: list[str]) -> list[str]:
    return [kind for kind in kinds if kind in WATCHED]


@pytest.fixture(scope="module")
def tallies() -> Tallies:
    """One workload of each kind, logged each second, and watched by the daemons tested below."""
    counted = Tallies()
    for kind in KINDS:
        tested = {DAEMON: watched(VISIBLE), TAGGED: watched(TRAINING_KINDS)}
        daemons = tuple(name for name, kinds in tested.items() if kind in kinds)
        counted.update(evaluate_one(Work(kind, SEED, HOURS, (1.0,), daemons)))
    return counted


class TestALogOfOneReadingASecond:
    def test_reports_no_healthy_gpu(self, tallies: Tallies) -> None:
        assert over(tallies, AT_A_SECOND, list(KINDS)).false_on_healthy == 0

    def test_reports_others_only_where_utilisation_cannot_distinguish_them(
        self, tallies: Tallies
    ) -> None:
        assert {kind for kind in KINDS if tallies[AT_A_SECOND, kind].false} <= INDISTINGUISHABLE

    def test_shows_the_lost_seconds_within_two_percent(self, tallies: Tallies) -> None:
        errors = over(tallies, AT_A_SECOND, VISIBLE).lost_errors

        assert np.median(np.abs(errors)) < 0.02
        assert abs(np.mean(errors)) < 0.02

    @pytest.mark.parametrize("other", [MEAN, SAGEMAKER])
    def test_reports_fewer_that_are_not_starved_than_another_rule(
        self, tallies: Tallies, other: str
    ) -> None:
        ours, theirs = (over(tallies, Row(name, 1.0), list(KINDS)) for name in (LOG, other))

        assert ours.false < theirs.false

    def test_finds_as_much_with_the_memory_in_use(self, tallies: Tallies) -> None:
        with_memory, bare = (over(tallies, Row(name, 1.0), VISIBLE) for name in (LOG, BARE))

        assert with_memory.false <= bare.false
        assert with_memory.right == bare.right


class TestADaemonThatReadsTheTags:
    def test_is_right_on_every_training_run(self, tallies: Tallies) -> None:
        tally = over(tallies, Row(TAGGED, None), watched(TRAINING_KINDS))

        assert (tally.false, tally.missed) == (0, 0)
        assert min(tally.right, tally.quiet) >= len(WATCHED) // 4

    def test_shows_the_lost_seconds_within_two_percent(self, tallies: Tallies) -> None:
        errors = over(tallies, Row(TAGGED, None), watched(TRAINING_KINDS)).lost_errors

        assert np.median(np.abs(errors)) < 0.02

    def test_reports_it_within_a_burst(self, tallies: Tallies) -> None:
        assert max(over(tallies, Row(TAGGED, None), watched(VISIBLE)).delays) <= 1


class TestADaemonWithoutTags:
    def test_finds_as_much_as_a_log_and_the_lost_seconds_more_exactly(
        self, tallies: Tallies
    ) -> None:
        kinds = watched(VISIBLE)
        daemon, log = over(tallies, Row(DAEMON, None), kinds), over(tallies, AT_A_SECOND, kinds)

        assert abs(daemon.right - log.right) <= 1
        assert np.median(np.abs(daemon.lost_errors)) < np.median(np.abs(log.lost_errors))


def test_a_healthy_day_has_no_false_alarm() -> None:
    assert false_alarms(SEED, hours=24.0) == 0
