"""Specification of state changes: a pause is one once the GPU works again, and not too late."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.log_summary.activity import ChangeBudget, GpuActivity, StateChanges
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import every, s

UNOBSERVED, OUT_OF_USE, PAUSED, WORKING = GpuActivity


def samples_of(ratios: Sequence[float | None], period_s: float = 1.0) -> list[BusySample]:
    """One sample a period from 0 on; ``None``: unknown."""
    return [
        BusySample(s(at * period_s), s((at + 1) * period_s), ratio)
        for at, ratio in enumerate(ratios)
        if ratio is not None
    ]


def changes_of(samples: Sequence[BusySample], budget: ChangeBudget | None = None) -> StateChanges:
    changes = StateChanges(DEFAULT_SETTINGS, budget or ChangeBudget())
    changes.observe(samples)
    changes.finish()
    return changes


def states(*ratios: float | None) -> list[tuple[float, GpuActivity]]:
    return [(at_ns / 1e9, state) for at_ns, state in changes_of(samples_of(ratios))]


class TestAPause:
    def test_lies_between_two_active_samples(self) -> None:
        assert states(1, 0, 0, 1) == [
            (0, WORKING),
            (1, PAUSED),
            (3, WORKING),
            (4, UNOBSERVED),
        ]

    def test_has_the_idle_part_of_the_samples_beside_it(self) -> None:
        assert states(1, 0.25, 0, 0.5, 1) == [
            (0, WORKING), (1.25, PAUSED), (3.5, WORKING), (5, UNOBSERVED),
        ]  # fmt: skip

    def test_leaves_the_idle_part_of_a_sample_between_two_to_the_first(self) -> None:
        assert states(1, 0, 0.5, 0, 1) == [
            (0, WORKING), (1, PAUSED), (2.5, WORKING), (3, PAUSED), (4, WORKING), (5, UNOBSERVED),
        ]  # fmt: skip

    def test_is_none_before_the_first_active_sample_or_after_the_last(self) -> None:
        assert states(0, 0.5, 0.5, 0) == [
            (0, OUT_OF_USE), (1, WORKING), (3, OUT_OF_USE), (4, UNOBSERVED),
        ]  # fmt: skip

    def test_is_none_where_it_lasts_longer_than_a_job_can(self) -> None:
        assert states(0.5, *[0] * 61, 0.5) == [
            (0, WORKING), (1, OUT_OF_USE), (62, WORKING), (63, UNOBSERVED),
        ]  # fmt: skip
        assert states(1, *[0] * 60, 1)[1] == (1, PAUSED)

    def test_is_none_where_the_job_is_known_to_have_ended(self) -> None:
        changes = StateChanges(DEFAULT_SETTINGS, ChangeBudget())

        changes.observe(every(1, [0.5, 0, 0]))
        changes.end_job()
        changes.observe(every(1, [0, 0.5], 3))
        changes.finish()

        assert [(at_ns / 1e9, state) for at_ns, state in changes] == [
            (0, WORKING), (1, OUT_OF_USE), (4, WORKING), (5, UNOBSERVED),
        ]  # fmt: skip

    def test_goes_on_after_a_silence(self) -> None:
        assert states(1, 0, None, 0, 1) == [
            (0, WORKING), (1, PAUSED), (2, UNOBSERVED), (3, PAUSED), (4, WORKING), (5, UNOBSERVED),
        ]  # fmt: skip


class TestASample:
    def test_changes_nothing_if_it_overlaps_an_earlier_one(self) -> None:
        first, late = BusySample(s(0), s(2), 1.0), BusySample(s(1), s(3), 0.0)

        assert list(changes_of([BusySample(-(1 << 70), 0, 0.0), first, late])) == list(
            changes_of([first])
        )


class TestTheCapacity:
    def test_keeps_nothing_of_any_gpu_once_full(self) -> None:
        budget = ChangeBudget(limit=6)
        first, second = (changes_of(samples_of([1, 0, 1, 0, 1]), budget) for _ in range(2))

        assert budget.is_full
        assert list(second) == []
        assert len(list(first)) == 6

    def test_is_not_used_by_a_state_that_lasts(self) -> None:
        budget = ChangeBudget()

        changes_of(samples_of([1] * 1_000), budget)

        assert ChangeBudget().remaining - budget.remaining == 2

    def test_does_not_hold_times_that_no_user_lives_to_see(self) -> None:
        budget = ChangeBudget()

        assert list(changes_of([BusySample(1 << 62, 1 << 63, 1.0)], budget)) == []
        assert budget.is_full


rows = st.lists(st.none() | st.sampled_from([0.0, 0.05, 0.06, 0.3, 0.5, 1.0]), max_size=200)


class TestLaws:
    @given(rows, st.integers(1, 60), st.sampled_from([1.0, 5.0, 30.0]), st.sets(st.integers(0, 60)))
    def test_the_time_in_use_is_that_of_the_ledger(
        self, ratios: list[float | None], batch: int, period_s: float, ends: set[int]
    ) -> None:
        samples = samples_of(ratios, period_s)
        ledger, changes = GpuLedger(), StateChanges(DEFAULT_SETTINGS, ChangeBudget())
        for at in range(0, len(samples), batch):
            ledger.observe(samples[at : at + batch])
            changes.observe(samples[at : at + batch])
            if at in ends:
                ledger.end_job()
                changes.end_job()
        ledger.end_job()
        changes.finish()

        spans = list(pairwise(changes))
        totals = ledger.snapshot()

        assert all(before_ns <= after_ns for (before_ns, _), (after_ns, _) in spans)
        assert totals.in_use_ns == sum(
            until_ns - at_ns for (at_ns, state), (until_ns, _) in spans if state >= PAUSED
        )
        assert totals.observed_ns == sum(
            until_ns - at_ns for (at_ns, state), (until_ns, _) in spans if state
        )
