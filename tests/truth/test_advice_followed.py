"""Specification of advice that is followed: what counts as a promise kept, and the page's table."""

from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from tests.builders.report import gpu, report
from tests.truth.advice.followed import Followed, followed_of, is_kept, table
from tests.truth.advice.trainings import CASES

SAVED = Followed("checkpoint", None, 2.0, 1.8, "Save less often.")


class TestAPromise:
    @pytest.mark.parametrize(
        ("gain", "kept"), [(1.49, False), (1.5, True), (2.0, True), (2.03, True), (2.05, False)]
    )
    def test_is_kept_between_half_of_it_and_all(self, gain: float, kept: bool) -> None:
        assert is_kept(SAVED._replace(gain=gain)) is kept

    def test_must_have_been_made(self) -> None:
        healthy = report(gpu(60))

        with pytest.raises(AssertionError):
            followed_of("checkpoint", healthy, healthy)


class TestTheTable:
    def test_says_which_bounds_held_and_what_was_not_made(self) -> None:
        reported = table(
            {"saving": SAVED, "tight": SAVED._replace(gain=3.0), "memory": "no cgroup"}
        )

        assert "| saving | checkpoint | 2.00 | 1.80 | yes |" in reported
        assert "| tight | checkpoint | 2.00 | 3.00 | **no** |" in reported
        assert "not made: no cgroup" in reported

    def test_has_every_cause_that_a_run_alone_can_lose_time_to(self) -> None:
        of_others = {"within_step", "imbalance", "unknown", "not_in_use", "input_wait"}
        causes = {cause.value for cause in IdleCause} - of_others

        assert causes <= {case.cause for case in CASES.values()}
