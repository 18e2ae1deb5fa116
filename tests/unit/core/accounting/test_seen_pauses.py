"""Specification: a pause takes the cause that stack samples agree on, near them, when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.seen_pauses import PlacedSample
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import IdleCause
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackFrame
from tests.builders.time import every, rhythm, s

INPUT, SAVE, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.UNKNOWN


def placed(at_s: float, cause: IdleCause | None = INPUT, takes_s: float = 0.05) -> PlacedSample:
    return PlacedSample(s(at_s), s(at_s + takes_s), Place(cause))


def watched(ratios: Sequence[float], *samples: PlacedSample, period_s: float = 0.25) -> GpuLedger:
    """A GPU whose stack samples all come before the driver samples."""
    ledger = GpuLedger()
    for sample in samples:
        ledger.note_stack_sample(sample)
    ledger.observe(every(period_s, ratios))
    return ledger


def seen_in(ratios: Sequence[float], *samples: PlacedSample) -> GpuTotals:
    totals = watched(ratios, *samples).snapshot()
    assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
    return totals


BURST, SECOND = [1.0] * 4, [0.0] * 4
"""Each a second long."""


class TestAPause:
    def test_of_up_to_two_seconds_takes_the_cause_of_one_sample(self) -> None:
        totals = seen_in([*BURST, *SECOND, *SECOND, *BURST], placed(2.5))

        assert totals.idle_ns == {INPUT: s(2)}
        assert totals.seen_ns == {INPUT: s(2)}
        assert (totals.starved_ns, totals.suspected_ns) == (s(2), 0)

    def test_is_pending_until_it_ends(self) -> None:
        totals = seen_in([*BURST, *SECOND], placed(1.5))

        assert (totals.pending_ns, totals.seen_ns) == (s(1), {})

    def test_takes_it_with_the_idle_parts_of_the_samples_around_it(self) -> None:
        totals = seen_in([*BURST, 0.5, 0.0, 0.0, 0.6, *BURST], placed(1.3))

        assert totals.idle_ns == {INPUT: s(0.125 + 0.5 + 0.1)}

    def test_takes_it_only_within_an_interval_of_the_samples(self) -> None:
        # Ten seconds, and one sample after 1.5 s: from 2 s before it to 2 s after.
        totals = seen_in([*BURST, *SECOND * 10, *BURST], placed(2.5))

        assert totals.idle_ns[INPUT] == pytest.approx(s(3.55), abs=1)
        assert totals.idle_ns[UNKNOWN] == s(10) - totals.idle_ns[INPUT]

    def test_whose_samples_disagree_stays_unknown(self) -> None:
        samples = [placed(1.5), placed(2.5, SAVE), placed(3.5)]

        assert seen_in([*BURST, *SECOND * 3, *BURST], *samples).idle_ns == {UNKNOWN: s(3)}

    def test_whose_samples_agree_by_four_fifths_takes_the_cause(self) -> None:
        samples = [placed(1.45 + k, INPUT if k else SAVE) for k in range(5)]

        assert seen_in([*BURST, *SECOND * 5, *BURST], *samples).idle_ns == {INPUT: s(5)}

    def test_whose_samples_agree_for_less_of_its_time_stays_unknown(self) -> None:
        # Samples are denser at its beginning: nine of eleven, but 30 of 50 s.
        times_s = (0.5, 2.5, 4.5, 6.5, 8.5, 10.7, 14.0, 18.7, 25.0, 33.0, 43.0)
        samples = [placed(1 + at_s, INPUT if at_s < 30 else SAVE) for at_s in times_s]

        totals = seen_in([*BURST, *SECOND * 50, *BURST], *samples)

        assert totals.idle_ns == {UNKNOWN: s(50)}

    def test_whose_samples_show_no_cause_stays_unknown(self) -> None:
        totals = seen_in([*BURST, *SECOND, *BURST], placed(1.5, None))

        assert totals.idle_ns == {UNKNOWN: s(1)}

    def test_that_leads_to_no_work_is_not_in_use(self) -> None:
        ledger = watched([*BURST, *SECOND], placed(1.5))
        ledger.end_job()

        assert ledger.snapshot().idle_ns == {IdleCause.NOT_IN_USE: s(1)}

    def test_of_another_cause_is_neither_starved_nor_suspected(self) -> None:
        ratios = [*(BURST + SECOND) * 20, *BURST]
        samples = [placed(1.5 + 2 * k, SAVE) for k in range(20)]

        totals = seen_in(ratios, *samples)

        assert totals.idle_ns == {SAVE: s(20)}
        assert (totals.starved_ns, totals.suspected_ns) == (0, 0)


class TestASampleIsNoEvidence:
    @pytest.mark.parametrize(
        ("at_s", "takes_s", "was"),
        [
            (0.5, 0.1, SampleKind.BUSY),
            (0.9, 0.2, SampleKind.MIXED),  # it began before the pause
            (1.9, 0.2, SampleKind.MIXED),  # it ended after the pause
        ],
    )
    def test_unless_the_gpu_was_idle_all_the_time(
        self, at_s: float, takes_s: float, was: SampleKind
    ) -> None:
        ledger = watched([*BURST, *SECOND, *BURST], placed(at_s, takes_s=takes_s))

        assert [joined.kind for joined in ledger.pop_stack_samples()] == [was]
        assert ledger.snapshot().seen_ns == {}

    def test_of_time_that_was_not_observed(self) -> None:
        ledger = GpuLedger()
        ledger.note_stack_sample(placed(1.5))
        for sample in (*every(0.25, BURST), *every(0.25, SECOND, 2.0), *every(0.25, BURST, 3.0)):
            ledger.observe([sample])

        assert [joined.kind for joined in ledger.pop_stack_samples()] == [SampleKind.UNOBSERVED]
        assert ledger.snapshot().seen_ns == {}

    def test_of_time_that_is_settled_already(self) -> None:
        ledger = watched([*BURST, *SECOND, *BURST], placed(0.2))
        ledger.observe(every(0.25, SECOND, 3.0))
        ledger.note_stack_sample(placed(1.5))  # too late
        ledger.observe(every(0.25, BURST, 4.0))

        kinds = [joined.kind for joined in ledger.pop_stack_samples()]
        assert kinds == [SampleKind.BUSY, SampleKind.UNOBSERVED]
        assert ledger.snapshot().seen_ns == {}


class TestUnseenPauses:
    """The rest of a job, in which a tenth of the pauses has a stack sample."""

    BURSTY = (*rhythm(4, 4, 40), *BURST)

    def probability(self, *samples: PlacedSample) -> float:
        suspicion = seen_in(self.BURSTY, *samples).suspicion
        assert suspicion is not None
        return suspicion.input_probability

    def test_are_likelier_waits_for_input_if_others_are(self) -> None:
        samples = [placed(1.5 + 2 * k) for k in range(4)]

        assert self.probability() < self.probability(*samples) < 1

    def test_are_no_longer_suspected_if_others_are_something_else(self) -> None:
        samples = [placed(1.5 + 2 * k, SAVE) for k in range(4)]

        assert 0 < self.probability(*samples) < 0.5

    def test_are_less_likely_if_others_are_in_code_that_no_row_knows(self) -> None:
        in_own_code = Place(caller=StackFrame("evaluate", "/home/ann/train.py", 77))
        seen = [placed(1.5 + 2 * k)._replace(place=in_own_code) for k in range(4)]
        unread = [placed(1.5 + 2 * k, None) for k in range(4)]

        assert 0 < self.probability(*seen) < self.probability(*unread) == self.probability()

    def test_in_code_that_no_row_knows_are_not_suspected_beside_seen_ones(self) -> None:
        in_own_code = Place(caller=StackFrame("evaluate", "/home/ann/train.py", 77))
        samples = [placed(1.5 + 2 * k) for k in (10, 11, 12, 13)]
        samples += [placed(1.5 + 2 * 14)._replace(place=in_own_code)]

        assert seen_in(self.BURSTY, *samples).suspected_ns == s(35)

    def test_are_suspected_once_three_samples_show_input(self) -> None:
        # Pauses of equal bursts: by their shape alone, they are not suspected.
        samples = [placed(1.5 + 2 * k) for k in (10, 11, 12)]

        totals = seen_in(self.BURSTY, *samples)

        assert seen_in(self.BURSTY).suspected_ns == 0
        assert totals.seen_ns == {INPUT: s(3)}
        assert totals.suspected_ns == s(37)
        assert (totals.sampled_pauses, totals.seen_input_pauses) == (3, 3)
