"""Specification of the ledger: each observed nanosecond is busy, idle for a cause, or pending."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.bounds import Bounds, Narrowed
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.sample import BusySample
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.time import every, rhythm, s, settled

UNKNOWN, NOT_IN_USE, INPUT_WAIT = (
    IdleCause.UNKNOWN,
    IdleCause.NOT_IN_USE,
    IdleCause.INPUT_WAIT,
)


SECOND = SharedIdle({INPUT_WAIT: s(1)})


def live(*ratios: float, period_s: float = 1.0) -> GpuLedger:
    """The ledger of a live GPU after one sample a period."""
    ledger = GpuLedger()
    ledger.observe(every(period_s, ratios))
    return ledger


def observed(*ratios: float, period_s: float = 1.0) -> GpuTotals:
    return live(*ratios, period_s=period_s).snapshot()


def tagged(cause: IdleCause) -> GpuTotals:
    """Four pauses, whose idle time is all of that cause."""
    ledger = GpuLedger()
    for sample in every(1.0, [*rhythm(2, 2, 4), 1.0]):
        idle_ns = round((1 - sample.busy_ratio) * s(1))
        ledger.observe_shared(sample, SharedIdle({cause: idle_ns}, resolved_ns=idle_ns))
    return ledger.snapshot()


IDLE: dict[str, tuple[list[float], float, float, IdleCause | None]] = {
    "pending after a burst until something decides": ([1.0, 0.0, 0.0], 1.0, 2, None),
    "unknown with the next active sample": ([1.0, 0.0, 0.0, 1.0], 1.0, 2, UNKNOWN),
    "not in use once sixty seconds have passed": ([1.0, *[0.0] * 61], 1.0, 61, NOT_IN_USE),
    "pending for twelve samples however long": ([1.0, *[0.0] * 12], 10.0, 120, None),
    "not in use with the thirteenth of them": ([1.0, *[0.0] * 13], 10.0, 130, NOT_IN_USE),
    "unknown for one sample of a minute": ([1.0, 0.0, 1.0], 60.0, 60, UNKNOWN),
    "unknown at once inside an active sample": ([0.6], 1.0, 0.4, UNKNOWN),
    "not in use at once before any burst": ([0.0, 0.0], 1.0, 2, NOT_IN_USE),
}
"""Samples, their length, and how many seconds are idle for what; ``None``: pending."""


class TestIdleTime:
    @pytest.mark.parametrize("what", IDLE)
    def test_is_counted_as(self, what: str) -> None:
        ratios, period_s, idle_s, cause = IDLE[what]

        totals = observed(*ratios, period_s=period_s)

        assert totals.idle_ns == ({} if cause is None else {cause: s(idle_s)})
        assert totals.pending_ns == (s(idle_s) if cause is None else 0)


class TestPendingIdleTime:
    def test_is_not_in_use_once_the_log_ends(self) -> None:
        assert settled(every(1.0, [1.0, 0.0])).idle_ns == {NOT_IN_USE: s(1)}

    def test_is_pending_as_long_as_a_process_of_the_job_is_on_the_gpu(self) -> None:
        ledger = live(1.0)
        ledger.processes_seen(True)
        ledger.observe(every(1.0, [0.0] * 600, start_s=1.0))

        assert ledger.snapshot().pending_ns == s(600)

        ledger.processes_seen(False)

        assert ledger.snapshot().idle_ns == {NOT_IN_USE: s(600)}

    def test_is_pending_for_sixty_seconds_if_the_list_never_named_a_process(self) -> None:
        ledger = live(1.0)
        ledger.processes_seen(False)
        ledger.observe(every(1.0, [0.0] * 30, start_s=1.0))

        assert ledger.snapshot().pending_ns == s(30)

    def test_is_pending_for_sixty_seconds_if_the_list_goes_away(self) -> None:
        ledger = live(1.0)
        ledger.processes_seen(True)
        for sample in every(1.0, [0.0] * 100, start_s=1.0):
            ledger.observe([sample])
            ledger.processes_seen(None)

        assert ledger.snapshot().idle_ns == {NOT_IN_USE: s(100)}


class TestExplainedIdleTime:
    def test_settles_with_the_cause_of_the_phase_that_covers_it(self) -> None:
        ledger = live(1.0)
        share = SharedIdle({IdleCause.CHECKPOINT: s(1)}, resolved_ns=s(1))
        ledger.observe_shared(BusySample(s(1), s(2), 0.0), share)

        totals = ledger.snapshot()
        assert totals.idle_ns == {IdleCause.CHECKPOINT: s(1)}
        assert totals.pending_ns == 0
        assert totals.resolved_ns == s(1)
        assert totals.in_use_ns == s(2)

    def test_settles_only_as_far_as_the_phase_covers_it(self) -> None:
        ledger = live(1.0)
        ledger.observe_shared(BusySample(s(1), s(2), 0.0), SharedIdle({INPUT_WAIT: s(0.25)}))

        totals = ledger.snapshot()
        assert totals.idle_ns == {INPUT_WAIT: s(0.25)}
        assert totals.pending_ns == s(0.75)
        assert totals.inferred_ns == s(0.25)


class TestAWaitForInput:
    """A second of it, after a burst."""

    def ledger(self, shared: SharedIdle = SECOND, **more: Any) -> GpuLedger:
        ledger = live(1.0)
        ledger.observe_shared(BusySample(s(1), s(2), 0.0), shared, **more)
        return ledger

    def test_has_its_reasons_and_is_unknown_otherwise(self) -> None:
        reasons_ns = {
            (INPUT_WAIT, InputWaitReason.CPU_BOUND): s(0.75),
            (IdleCause.WITHIN_STEP, InputWaitReason.GIL_BOUND): s(0.5),
        }

        totals = self.ledger(SECOND._replace(reasons_ns=reasons_ns)).snapshot()

        assert totals.input_wait_by_reason_ns == {"cpu_bound": s(0.75), "unknown": s(0.25)}
        assert totals.within_step_by_reason_ns == {}

    def test_has_its_parts_added_up(self) -> None:
        parts: dict[str, Any] = {
            "resolved_ns": 1,
            "hidden_input_wait_ns": 2,
            "first_input_wait_ns": 3,
            "validation_input_wait_ns": 4,
            "epoch_input_wait_ns": 5,
        }

        totals = self.ledger(SECOND._replace(**parts)).snapshot()

        assert {name: getattr(totals, name) for name in parts} == parts
        assert totals.inferred_ns == s(1) - 1

    def test_is_not_starved_while_the_run_hangs(self) -> None:
        totals = self.ledger(hung_ns=s(0.4)).snapshot()

        assert (totals.hanging_ns, totals.hanging_idle_ns) == (s(0.4), {INPUT_WAIT: s(0.4)})
        assert totals.starved_ns == s(0.6)

    def test_is_starved_as_far_as_it_is_certain(self) -> None:
        ledger = self.ledger(bounds=Bounds({INPUT_WAIT: s(1)}, {INPUT_WAIT: s(0.5)}, {}))

        assert ledger.snapshot().starved_ns == s(0.5)

        ledger.narrow(Narrowed({INPUT_WAIT: s(0.2)}, {}))

        assert ledger.snapshot().starved_ns == s(0.7)
        assert ledger.snapshot().bounds_ns(INPUT_WAIT) == (s(0.7), s(1))


class TestTimeBeforeTheFirstBurst:
    def test_is_start_up_if_a_tagged_run_then_uses_the_gpu(self) -> None:
        ledger = GpuLedger()
        ledger.set_run_waiting(True)
        ledger.observe(every(1.0, [0.0, 0.0, 1.0]))

        assert ledger.snapshot().idle_ns == {IdleCause.START_UP: s(2)}
        assert ledger.snapshot().in_use_ns == s(1)

    def test_is_not_in_use_if_the_run_never_does(self) -> None:
        ledger = GpuLedger()
        ledger.set_run_waiting(True)
        ledger.observe(every(1.0, [0.0, 0.0]))

        assert ledger.snapshot().pending_ns == s(2)

        ledger.set_run_waiting(False)

        assert ledger.snapshot().idle_ns == {NOT_IN_USE: s(2)}


class TestInUseTime:
    def test_runs_from_the_first_to_the_last_active_sample(self) -> None:
        totals = settled(every(1.0, [0.0] * 5 + [1.0, 0.0, 0.0, 1.0] + [0.0] * 5))

        assert totals.in_use_ns == s(4)
        assert totals.lost_ns == s(2)

    def test_leaves_out_the_break_between_two_jobs(self) -> None:
        totals = settled(every(1.0, [1.0] * 10 + [0.0] * 300 + [1.0] * 10))

        assert totals.in_use_ns == s(20)
        assert totals.gaps.count == 0


class TestPauses:
    def test_are_suspected_with_the_earlier_ones_once_their_shape_decides(self) -> None:
        ledger = GpuLedger()
        suspected = []
        for sample in every(1.0, on_and_off(late_waves(30))):
            ledger.observe([sample])
            suspected.append(ledger.snapshot().suspected_ns)

        first = next(ns for ns in suspected if ns)
        assert first >= s(9)
        assert first % s(3) == 0
        assert suspected[-1] == s(90)

    def test_are_suspected_as_far_as_no_tag_explains_them(self) -> None:
        ledger = GpuLedger()
        for sample in every(1.0, on_and_off(late_waves(30))):
            explained_ns = sample.idle_ns * 2 // 5
            ledger.observe_shared(sample, SharedIdle({IdleCause.CHECKPOINT: explained_ns}))

        assert ledger.snapshot().suspected_ns == s(54)

    def test_include_the_idle_part_of_the_samples_at_their_edges(self) -> None:
        edged = [[*[1.0] * (busy - 1), 0.5, *[0.0] * 3, 0.5] for busy, _ in late_waves(30)]
        totals = settled(every(1.0, [*itertools.chain(*edged), 1.0]))

        assert totals.gaps.count == 30
        assert totals.gaps.total_ns == s(120)
        assert totals.starved_intervals[0] == (s(2.5), s(6.5))

    def test_are_starved_and_not_suspected_if_tagged_as_input_wait(self) -> None:
        totals = tagged(INPUT_WAIT)

        assert totals.starved_ns == s(8)
        assert totals.suspected_ns == 0
        assert len(totals.starved_intervals) == 4

    def test_are_gaps_but_not_starved_if_tagged_as_checkpoint(self) -> None:
        totals = tagged(IdleCause.CHECKPOINT)

        assert totals.gaps.count == 4
        assert totals.starved_intervals == ()

    def test_are_none_without_a_burst_on_both_sides(self) -> None:
        assert settled(every(1.0, [0.3, 0.0, 0.3, 0.0, 0.3])).gaps.count == 0


class TestAnImpossibleSample:
    @pytest.mark.parametrize(
        "refused",
        [
            *(BusySample(s(2), s(3), ratio) for ratio in (math.nan, -0.1, 2.55, math.inf)),
            BusySample(s(1), s(2), 0.0),
        ],
        ids=["no number", "less than nothing", "255 %", "infinite", "overlapping"],
    )
    def test_is_rejected_and_never_idle(self, refused: BusySample) -> None:
        ledger = GpuLedger()
        ledger.observe([BusySample(0, s(2), 1.0), refused])

        assert ledger.snapshot().observed_ns == s(2)
        assert ledger.snapshot().idle_ns == {}
        assert ledger.rejected == 1
