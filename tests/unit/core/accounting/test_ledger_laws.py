"""Laws of the ledger: what holds after every step of any sequence of samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate, combinations, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.accounting.seen_pauses import PlacedSample
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.diagnosis.report_since import totals_since
from gpumon.core.phase import UNPROVED, IdleCause, InputWaitReason
from gpumon.core.sample import BusySample
from gpumon.core.stacks.place import Place
from tests.builders.time import every, s, settled

Story = list[tuple[int, int, float, IdleCause | None, str, IdleCause | str | None]]
"""Silence before a sample and its length in ns, busy ratio, the phase's cause, an event, and what a
stack sample within it shows.
"""

ratios = st.lists(
    st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 1.0, 0.05, 0.35, math.nan, 2.55])),
    max_size=120,
)
steps = st.lists(
    st.tuples(
        st.integers(0, 3 * s(1)),  # silence before the sample
        st.integers(1, 2 * s(1)),  # its length
        st.one_of(st.sampled_from([0.0, 1.0, 0.2]), st.floats(0.0, 1.0)),
        st.sampled_from([None, *IdleCause]),
        st.sampled_from(["nothing", "end", "named", "gone", "run", "no run"]),
        st.sampled_from([None, None, "unplaced", *IdleCause]),
    ),
    max_size=80,
)


def happens(ledger: GpuLedger, event: str) -> None:
    """One event in the life of a job, by its name in ``steps``."""
    if event == "end":
        ledger.end_job()
    elif event in ("named", "gone"):
        ledger.processes_seen(event == "named")
    elif event in ("run", "no run"):
        ledger.set_run_waiting(event == "run")


def played(story: Story) -> list[GpuTotals]:
    """Totals after each step of a life with samples, phases, processes and runs."""
    return [totals for totals, _ in marks_of(story)]


def marks_of(story: Story) -> list[tuple[GpuTotals, Unsettled]]:
    """The same, with what is not settled yet."""
    ledger, now_ns, states = GpuLedger(), 0, []
    for silence_ns, length_ns, ratio, cause, event, seen in story:
        start_ns, now_ns = now_ns + silence_ns, now_ns + silence_ns + length_ns
        if seen is not None:
            place = Place(seen if isinstance(seen, IdleCause) else None)
            ledger.note_stack_sample(PlacedSample(start_ns, now_ns, place))
        sample = BusySample(start_ns, now_ns, ratio)
        if cause is None:
            ledger.observe([sample])
        else:
            half_ns = (length_ns - round(length_ns * ratio)) // 2
            reasons_ns = {(cause, InputWaitReason.GIL_BOUND): half_ns // 3}
            ledger.observe_shared(sample, SharedIdle({cause: half_ns}, reasons_ns))
        happens(ledger, event)
        states.append((ledger.snapshot(), ledger.unsettled()))
    return states


def reasons_of(totals: GpuTotals) -> dict[IdleCause, Mapping[str, int]]:
    return {
        IdleCause.INPUT_WAIT: totals.input_wait_by_reason_ns,
        IdleCause.WITHIN_STEP: totals.within_step_by_reason_ns,
    }


def assert_only_grows(before: Mapping[Any, int], after: Mapping[Any, int]) -> None:
    assert all(after[key] >= amount_ns for key, amount_ns in before.items())


class TestLaws:
    @given(steps)
    def test_the_sums_close_at_every_step(self, story: Story) -> None:
        lengths_ns = accumulate(length_ns for _, length_ns, *_ in story)
        for observed_ns, totals in zip(lengths_ns, played(story), strict=True):
            assert totals.observed_ns == observed_ns  # silence is not observed
            assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
            assert 0 <= totals.in_use_busy_ns <= totals.in_use_ns <= totals.observed_ns
            pauses_ns = totals.suspected_ns + totals.irregular_ns
            assert pauses_ns <= totals.idle_ns.get(IdleCause.UNKNOWN, 0)
            for cause, seen_ns in totals.seen_ns.items():
                assert 0 <= seen_ns <= totals.idle_ns.get(cause, 0)
                assert cause not in UNPROVED
            for cause, reasons_ns in reasons_of(totals).items():
                assert sum(reasons_ns.values()) == totals.idle_ns.get(cause, 0)

    @given(steps)
    def test_no_counter_ever_falls_and_nothing_settled_moves(self, story: Story) -> None:
        for before, after in pairwise([GpuTotals(), *played(story)]):
            for name in ("observed_ns", "busy_ns", "suspected_ns", "irregular_ns", "in_use_ns"):
                assert getattr(after, name) >= getattr(before, name), name
            assert after.gaps.count >= before.gaps.count
            assert_only_grows(before.idle_ns, after.idle_ns)
            assert_only_grows(before.seen_ns, after.seen_ns)
            assert_only_grows(before.seen_samples, after.seen_samples)
            for cause, reasons_ns in reasons_of(after).items():
                assert_only_grows(reasons_of(before)[cause], reasons_ns)

    @given(steps)
    def test_the_sums_close_between_any_two_steps(self, story: Story) -> None:
        marks = [(GpuTotals(), NOTHING_UNSETTLED), *marks_of(story)]
        for (before, unsettled_before), (after, unsettled_after) in combinations(marks[:24], 2):
            totals = totals_since(
                before,
                after,
                unsettled_before=unsettled_before.to_subtract,
                unsettled_after=unsettled_after,
            )
            assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
            for cause, seen_ns in totals.seen_ns.items():
                assert 0 <= seen_ns <= totals.idle_ns.get(cause, 0)
            assert all(count >= 0 for count in totals.seen_samples.values())
            assert 0 <= totals.seen_input_pauses <= totals.sampled_pauses
            assert 0 <= totals.suspected_ns <= totals.idle_ns.get(IdleCause.UNKNOWN, 0)

    @given(ratios)
    def test_an_invalid_sample_changes_nothing(self, some: list[float]) -> None:
        samples = every(1.0, some)
        valid = [sample for sample in samples if 0.0 <= sample.busy_ratio <= 1.0]

        assert settled(samples) == settled(valid)
