"""Tests of the balance of a job's GPUs, and of the gain from better ratios."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import shares_of
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import RunReport
from tests.builders.report import rank_of, shared_run

speeds_of_gpus = st.lists(st.floats(1.0, 50.0), min_size=2, max_size=5)


def balance(busy: list[float], shares: list[float] | None = None) -> JobBalance:
    names = [f"GPU-{at}" for at in range(len(busy))]
    return JobBalance(
        busy_ratios=dict(zip(names, busy, strict=True)),
        shares=None if shares is None else dict(zip(names, shares, strict=True)),
        has_reported_shares=shares is not None,
    )


class TestTheSkew:
    def test_is_the_part_of_the_time_that_the_least_busy_gpu_waits(self) -> None:
        assert balance([2 / 3, 1.0]).skew_ratio == pytest.approx(1 / 3)
        assert balance([0.4, 0.8, 0.6]).skew_ratio == pytest.approx(0.5)

    def test_is_unknown_if_no_gpu_was_busy(self) -> None:
        assert balance([0.0, 0.0]).skew_ratio is None

    def test_is_balanced_at_one_percent(self) -> None:
        assert balance([0.99, 1.0]).is_level
        assert not balance([0.97, 1.0]).is_level


class TestTheBalancedRatios:
    def test_follow_from_busy_times_and_shares(self) -> None:
        assert balance([2 / 3, 1.0], [0.5, 0.5]).balanced_ratios == pytest.approx(
            {"GPU-0": 0.6, "GPU-1": 0.4}
        )

    def test_are_parts_of_the_local_share_if_peers_are_on_another_machine(self) -> None:
        here = balance([2 / 3, 1.0], [0.1, 0.1])

        assert here.balanced_ratios == pytest.approx({"GPU-0": 0.6, "GPU-1": 0.4})
        assert here.levelled_busy_ratio == pytest.approx(0.8)

    def test_are_unknown_without_shares(self) -> None:
        assert balance([2 / 3, 1.0]).balanced_ratios is None
        assert balance([2 / 3, 1.0]).gain_part is None
        assert balance([2 / 3, 1.0]).levelled_if_even is not None

    @pytest.mark.parametrize(("busy", "shares"), [([0.0, 1.0], [0.5, 0.5]), ([0.5, 1.0], [0, 1])])
    def test_are_unknown_if_a_gpu_did_nothing(self, busy: list[float], shares: list[float]) -> None:
        assert balance(busy, shares).balanced_ratios is None

    @given(speeds_of_gpus, st.data())
    def test_match_the_speeds_and_the_gain_is_the_time_saved(
        self, speeds: list[float], data: st.DataObject
    ) -> None:
        count = len(speeds)
        ratios = data.draw(st.lists(st.floats(0.5, 5.0), min_size=count, max_size=count))
        shares = shares_of(ratios)
        takes_s = [share / speed for share, speed in zip(shares, speeds, strict=True)]
        seen = balance([time_s / max(takes_s) for time_s in takes_s], list(shares))

        levelled_s = 1 / sum(speeds)  # for one batch, by all of them together
        assert seen.balanced_ratios is not None
        assert [*seen.balanced_ratios.values()] == pytest.approx(shares_of(speeds))
        assert seen.levelled_busy_ratio == pytest.approx(levelled_s / max(takes_s))
        assert seen.gain_part is not None
        if not seen.is_level:
            waited_s = max(takes_s) - min(takes_s)
            assert seen.gain_part == pytest.approx((max(takes_s) - levelled_s) / waited_s)


def job(*runs: RunReport) -> JobBalance:
    (one,) = balances(runs).values()
    return one


class TestAJob:
    def test_has_no_balance_with_one_gpu(self) -> None:
        assert balances([shared_run([1.0])]) == {}

    def test_is_one_of_two_if_two_users_share_its_id(self) -> None:
        runs = [replace(shared_run([0.5, 1.0]), owner_uid=uid) for uid in (1000, 1001)]

        assert [*balances(runs)] == [("j1", 1000), ("j1", 1001)]

    def test_has_the_reported_shares(self) -> None:
        one = job(shared_run([0.5, 1.0], shares=[0.7, 0.3]))

        assert (one.shares, one.has_reported_shares) == ({"GPU-0": 0.7, "GPU-1": 0.3}, True)

    @pytest.mark.parametrize(
        ("framework", "is_even"),
        [
            ("keras/tensorflow", True),
            ("keras/jax", True),
            ("loop", False),
            ("huggingface", False),  # may have put its layers on several GPUs
        ],
    )
    def test_is_even_in_one_process_only_with_some_frameworks(
        self, framework: str, is_even: bool
    ) -> None:
        one = job(shared_run([0.5, 1.0], framework=framework))

        assert (one.has_reported_shares, one.shares is not None) == (False, is_even)

    @pytest.mark.parametrize(("framework", "is_even"), [("lightning", True), ("loop", False)])
    def test_is_ordered_by_rank(self, framework: str, is_even: bool) -> None:
        one = job(rank_of(1, 0.5, framework=framework), rank_of(0, 1.0, framework=framework))

        assert list(one.busy_ratios.items()) == [("GPU-0", 1.0), ("GPU-1", 0.5)]
        assert (one.shares is not None) is is_even

    def test_is_not_assumed_to_be_even_if_shares_are_unknown(self) -> None:
        one = job(rank_of(0, 1.0, framework="lightning", share=0.8), rank_of(1, 0.5))

        assert one.shares is None

    def test_keeps_the_order_of_gpus_of_its_run(self) -> None:
        run = shared_run([0.5, 1.0], shares=[0.5, 0.5])
        run.shares["GPU-0"] = run.shares.pop("GPU-0")  # now behind the other

        assert list(job(run).busy_ratios) == ["GPU-1", "GPU-0"]
