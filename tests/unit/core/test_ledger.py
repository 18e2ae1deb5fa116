"""Specification of the ledger: each observed nanosecond is busy, idle for a cause, or pending."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.ledger import GpuLedger
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample
from gpumon.core.settings import DetectorSettings
from gpumon.core.sharing import SharedIdle
from gpumon.core.totals import GpuTotals
from gpumon.core.verdict import VerdictName
from gpumon.core.verdicts import judge
from tests.builders_time import every, rhythm, s, settled

UNKNOWN, NOT_IN_USE, INPUT_WAIT = (
    IdleCause.UNKNOWN,
    IdleCause.NOT_IN_USE,
    IdleCause.INPUT_WAIT,
)


def observed(*ratios: float) -> GpuTotals:
    """Totals of a live GPU after one sample a second."""
    ledger = GpuLedger()
    ledger.observe(every(1.0, ratios))
    return ledger.snapshot()


def wholly(cause: IdleCause, amount_ns: int) -> SharedIdle:
    return SharedIdle({cause: amount_ns}, amount_ns, 0)


class TestIdleTimeIsPending:
    def test_after_a_burst_until_something_decides(self) -> None:
        totals = observed(1.0, 0.0, 0.0)

        assert totals.pending_ns == s(2)
        assert totals.idle_ns == {}

    def test_and_becomes_unknown_with_the_next_active_sample(self) -> None:
        totals = observed(1.0, 0.0, 0.0, 1.0)

        assert totals.idle_ns == {UNKNOWN: s(2)}
        assert totals.pending_ns == 0

    def test_and_not_in_use_once_sixty_seconds_have_passed(self) -> None:
        totals = observed(1.0, *[0.0] * 61)

        assert totals.idle_ns == {NOT_IN_USE: s(61)}
        assert totals.pending_ns == 0

    def test_and_not_in_use_when_the_log_ends(self) -> None:
        assert settled(every(1.0, [1.0, 0.0])).idle_ns == {NOT_IN_USE: s(1)}

    def test_as_long_as_a_process_of_the_job_is_on_the_gpu(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        ledger.processes_seen(True)
        ledger.observe(every(1.0, [0.0] * 600, start_s=1.0))

        assert ledger.snapshot().pending_ns == s(600)

        ledger.processes_seen(False)

        assert ledger.snapshot().idle_ns == {NOT_IN_USE: s(600)}

    def test_where_the_list_never_named_a_process_until_the_sixty_seconds_are_over(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        ledger.processes_seen(False)
        ledger.observe(every(1.0, [0.0] * 30, start_s=1.0))

        assert ledger.snapshot().pending_ns == s(30)

    def test_where_the_list_goes_away_until_the_sixty_seconds_are_over(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        ledger.processes_seen(True)
        for sample in every(1.0, [0.0] * 100, start_s=1.0):
            ledger.observe([sample])
            ledger.processes_seen(None)

        assert ledger.snapshot().idle_ns == {NOT_IN_USE: s(100)}

    def test_at_sixty_seconds_a_sample_for_one_sample_and_longer(self) -> None:
        totals = settled(every(60.0, [1.0, 0.0, 1.0]))

        assert totals.idle_ns == {UNKNOWN: s(60)}


class TestIdleTimeSettlesAtOnce:
    def test_as_unknown_inside_an_active_sample(self) -> None:
        assert observed(0.6).idle_ns == {UNKNOWN: s(0.4)}

    def test_as_not_in_use_before_any_burst(self) -> None:
        assert observed(0.0, 0.0).idle_ns == {NOT_IN_USE: s(2)}

    def test_with_the_cause_of_the_phase_that_covers_it(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        ledger.observe_shared(BusySample(s(1), s(2), 0.0), wholly(IdleCause.CHECKPOINT, s(1)))

        totals = ledger.snapshot()
        assert totals.idle_ns == {IdleCause.CHECKPOINT: s(1)}
        assert totals.pending_ns == 0
        assert totals.resolved_ns == s(1)
        assert totals.in_use_ns == s(2)

    def test_only_as_far_as_the_phase_covers_it(self) -> None:
        ledger = GpuLedger()
        ledger.observe(every(1.0, [1.0]))
        ledger.observe_shared(BusySample(s(1), s(2), 0.0), SharedIdle({INPUT_WAIT: s(0.25)}, 0, 0))

        totals = ledger.snapshot()
        assert totals.idle_ns == {INPUT_WAIT: s(0.25)}
        assert totals.pending_ns == s(0.75)
        assert totals.inferred_ns == s(0.25)


class TestTimeBeforeTheFirstBurst:
    def test_is_start_up_where_a_tagged_run_then_uses_the_gpu(self) -> None:
        ledger = GpuLedger()
        ledger.run_waits(True)
        ledger.observe(every(1.0, [0.0, 0.0, 1.0]))

        assert ledger.snapshot().idle_ns == {IdleCause.START_UP: s(2)}
        assert ledger.snapshot().in_use_ns == s(1)

    def test_is_not_in_use_where_the_run_never_does(self) -> None:
        ledger = GpuLedger()
        ledger.run_waits(True)
        ledger.observe(every(1.0, [0.0, 0.0]))

        assert ledger.snapshot().pending_ns == s(2)

        ledger.run_waits(False)

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

    def test_of_a_flat_quarter_is_all_of_it(self) -> None:
        assert observed(*[0.25] * 8).in_use_ns == s(8)


class TestPauses:
    def test_are_suspected_from_the_third_on_and_the_earlier_ones_with_it(self) -> None:
        ledger = GpuLedger()
        suspected = []
        for sample in every(1.0, [*rhythm(2, 2, 4), 1.0]):
            ledger.observe([sample])
            suspected.append(ledger.snapshot().suspected_ns)

        assert suspected[8:12] == [0, 0, 0, 0]
        assert suspected[12] == s(6)
        assert suspected[-1] == s(8)

    def test_keep_the_cause_unknown(self) -> None:
        totals = settled(every(1.0, [*rhythm(2, 2, 4), 1.0]))

        assert totals.idle_ns == {UNKNOWN: s(8)}
        assert totals.suspected_ns == s(8)
        assert totals.starved_ns == 0

    def test_own_the_idle_part_of_the_samples_at_their_edges(self) -> None:
        ratios = [1.0, 1.0, 0.5, 0.0, 0.5] * 4 + [1.0]

        totals = settled(every(1.0, ratios))

        assert totals.gaps.count == 4
        assert totals.gaps.total_ns == s(8)
        assert totals.starved_intervals[0] == (s(2.5), s(4.5))

    def test_that_a_tag_explains_are_starved_and_not_suspected(self) -> None:
        ledger = GpuLedger()
        for sample in every(1.0, [*rhythm(2, 2, 4), 1.0]):
            idle_ns = round((1 - sample.busy_ratio) * s(1))
            ledger.observe_shared(sample, wholly(INPUT_WAIT, idle_ns))

        totals = ledger.snapshot()
        assert totals.starved_ns == s(8)
        assert totals.suspected_ns == 0
        assert len(totals.starved_intervals) == 4

    def test_of_a_checkpoint_are_gaps_but_not_starved(self) -> None:
        ledger = GpuLedger()
        for sample in every(1.0, [*rhythm(2, 2, 4), 1.0]):
            idle_ns = round((1 - sample.busy_ratio) * s(1))
            ledger.observe_shared(sample, wholly(IdleCause.CHECKPOINT, idle_ns))

        totals = ledger.snapshot()
        assert totals.gaps.count == 4
        assert totals.starved_intervals == ()

    def test_are_none_without_a_burst_on_both_sides(self) -> None:
        assert settled(every(1.0, [0.3, 0.0, 0.3, 0.0, 0.3])).gaps.count == 0


class TestWhatIsNeverIdle:
    def test_a_missing_sample(self) -> None:
        totals = settled([*every(1.0, [1.0]), *every(1.0, [1.0], start_s=31.0)])

        assert totals.observed_ns == s(2)
        assert totals.idle_ns == {}

    @pytest.mark.parametrize("ratio", [math.nan, -0.1, 2.55, math.inf])
    def test_a_value_that_no_device_can_mean(self, ratio: float) -> None:
        ledger = GpuLedger()
        ledger.observe([BusySample(0, s(1), ratio)])

        assert ledger.snapshot().observed_ns == 0
        assert ledger.rejected == 1

    def test_a_sample_for_time_already_taken(self) -> None:
        ledger = GpuLedger()
        ledger.observe([BusySample(0, s(2), 1.0), BusySample(s(1), s(2), 0.0)])

        assert ledger.snapshot().observed_ns == s(2)
        assert ledger.snapshot().idle_ns == {}
        assert ledger.rejected == 1


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
        ledger.run_waits(event == "run")


def played(story: list[tuple[int, int, float, IdleCause | None, str]]) -> list[GpuTotals]:
    """Totals after each step of a life with samples, phases, processes and runs."""
    ledger, now_ns, states = GpuLedger(), 0, []
    for silence_ns, length_ns, ratio, cause, event in story:
        start_ns, now_ns = now_ns + silence_ns, now_ns + silence_ns + length_ns
        sample = BusySample(start_ns, now_ns, ratio)
        if cause is None:
            ledger.observe([sample])
        else:
            half_ns = (length_ns - round(length_ns * ratio)) // 2
            ledger.observe_shared(sample, SharedIdle({cause: half_ns}, 0, 0))
        happens(ledger, event)
        states.append(ledger.snapshot())
    return states


class TestLaws:
    @given(steps)
    def test_the_sums_close_at_every_instant(
        self, story: list[tuple[int, int, float, IdleCause | None, str]]
    ) -> None:
        for totals in played(story):
            assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
            assert 0 <= totals.in_use_busy_ns <= totals.in_use_ns <= totals.observed_ns
            assert totals.suspected_ns <= totals.idle_ns.get(UNKNOWN, 0)

    @given(steps)
    def test_no_counter_ever_falls_and_nothing_settled_moves(
        self, story: list[tuple[int, int, float, IdleCause | None, str]]
    ) -> None:
        for before, after in pairwise(played(story)):
            assert after.observed_ns >= before.observed_ns
            assert after.busy_ns >= before.busy_ns
            assert after.suspected_ns >= before.suspected_ns
            assert after.in_use_ns >= before.in_use_ns
            assert after.gaps.count >= before.gaps.count
            for cause in IdleCause:
                assert after.idle_ns.get(cause, 0) >= before.idle_ns.get(cause, 0)

    @given(ratios)
    def test_an_invalid_sample_changes_nothing(self, some: list[float]) -> None:
        samples = every(1.0, some)
        valid = [sample for sample in samples if 0.0 <= sample.busy_ratio <= 1.0]

        assert settled(samples) == settled(valid)

    @given(ratios, st.lists(st.booleans(), min_size=120, max_size=120))
    def test_a_missing_sample_adds_no_idle_time(self, some: list[float], kept: list[bool]) -> None:
        samples = [x for x in every(1.0, some) if 0.0 <= x.busy_ratio <= 1.0]
        fewer = [sample for sample, keep in zip(samples, kept, strict=False) if keep]

        totals = settled(fewer)

        assert totals.observed_ns == sum(end - start for start, end, _ in fewer)
        assert totals.idle_total_ns <= sum(
            round((end - start) * (1 - ratio)) + 1 for start, end, ratio in fewer
        )

    @given(ratios, st.integers(1, 20))
    def test_it_does_not_matter_in_what_batches_samples_come(
        self, some: list[float], size: int
    ) -> None:
        samples = every(1.0, some)
        ledger = GpuLedger()
        for first in range(0, len(samples), size):
            ledger.observe(samples[first : first + size])
        ledger.end_job()

        batched, whole = ledger.snapshot(), settled(samples)
        assert batched._replace(episodes=0, starved_now=False) == whole._replace(
            episodes=0, starved_now=False
        )

    @given(
        st.lists(st.sampled_from([0.0, 0.0, 0.2, 0.6, 0.95, 1.0]), min_size=12, max_size=100),
        st.integers(1, 6),
        st.integers(0, 6),
        st.floats(0.0, 0.6),
        st.floats(0.0, 0.4),
    )
    def test_demanding_more_never_makes_it_suspected(
        self, some: list[float], pauses: int, more_pauses: int, share: float, more_share: float
    ) -> None:
        def verdict(settings: DetectorSettings) -> VerdictName:
            ledger = GpuLedger(settings)
            ledger.observe(every(1.0, some))
            ledger.end_job()
            return judge(ledger.snapshot(), settings).name

        loose = verdict(DetectorSettings(min_pauses=pauses, min_low_share=share))
        strict = verdict(
            DetectorSettings(min_pauses=pauses + more_pauses, min_low_share=share + more_share)
        )

        if strict is VerdictName.STARVATION_SUSPECTED:
            assert loose is VerdictName.STARVATION_SUSPECTED
