"""Specification of settling by runs: the same result as sample by sample."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.sample_columns import Levels, SampleColumns
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import s

NOTHING = SharedIdle({})
RATIOS = st.sampled_from((0.0, 0.0, 0.03, 0.05, 0.08, 0.1, 0.35, 0.5, 0.9, 0.97, 0.97, 1.0))
STRETCHES = st.lists(
    st.tuples(
        RATIOS,
        st.integers(1, 90),  # samples
        st.sampled_from((0.2, 1.0, 1.0, 7.0)),  # seconds each
        st.sampled_from((0.0, 0.0, 0.0, 0.3, 50.0, 100.0)),  # a gap before
    ),
    min_size=1,
    max_size=30,
)
Stretch = tuple[float, int, float, float]


def samples_of(stretches: list[Stretch]) -> list[BusySample]:
    samples, at_ns = [], 0
    for number, (ratio, count, length_s, gap_s) in enumerate(stretches):
        at_ns += s(gap_s)
        for at in range(count):
            length_ns = s(length_s) + (at * 7_919 + number) % 1_000
            samples.append(BusySample(at_ns, at_ns + length_ns, ratio))
            at_ns += length_ns
    return samples


@given(stretches=STRETCHES, cuts=st.lists(st.integers(1, 400), max_size=5), waits=st.booleans())
@example(stretches=[(0.97, 60, 1.0, 0.0), (0.0, 90, 1.0, 0.0)] * 3, cuts=[], waits=False)
@example(stretches=[(0.97, 7, 1.0, 0.0), (0.0, 3, 1.0, 0.0)] * 30, cuts=[200], waits=False)
@settings(deadline=None)
def test_runs_are_settled_as_their_samples_would_be_one_by_one(
    stretches: list[Stretch], cuts: list[int], waits: bool
) -> None:
    samples = samples_of(stretches)
    by_runs, one_by_one = GpuLedger(), GpuLedger()
    for ledger in (by_runs, one_by_one):
        ledger.set_run_waiting(waits)
    for end in [*sorted(cuts), len(samples)]:
        part, samples = samples[:end], samples[end:]
        by_runs.observe(part)
        for sample in part:
            one_by_one.observe_shared(sample, NOTHING)
        assert by_runs.unsettled() == one_by_one.unsettled()
        assert _without_flag(by_runs) == _without_flag(one_by_one)
    for ledger in (by_runs, one_by_one):
        ledger.end_job()
    assert _without_flag(by_runs) == _without_flag(one_by_one)
    assert (by_runs.jobs, by_runs.last_active_end_ns) == (
        one_by_one.jobs,
        one_by_one.last_active_end_ns,
    )


def _without_flag(ledger: GpuLedger) -> GpuTotals:
    """All totals but the flag, which is looked at after each call, not after each sample."""
    return ledger.snapshot()._replace(starved_now=False, episodes=0)


class TestStretches:
    def columns(self, *samples: BusySample) -> tuple[SampleColumns, int]:
        return SampleColumns.of(samples, Levels(DEFAULT_SETTINGS), 0)

    def test_end_at_a_gap_and_where_the_level_changes(self) -> None:
        columns, rejected = self.columns(
            BusySample(0, 4, 0.95),
            BusySample(4, 8, 0.97),
            BusySample(8, 9, 0.5),
            BusySample(12, 14, 0.5),
        )

        assert (columns.stretches, rejected) == ([(0, 2), (2, 3), (3, 4)], 0)
        assert columns.busy_between(0, 2) == 8

    def test_leave_out_impossible_samples(self) -> None:
        columns, rejected = self.columns(
            BusySample(0, 4, 0.97),
            BusySample(2, 6, 0.97),
            BusySample(4, 4, 0.97),
            BusySample(4, 8, float("nan")),
            BusySample(4, 8, 1.1),
            BusySample(4, 9, 0.97),
        )

        assert (list(columns.ends_ns), rejected) == ([4, 9], 4)

    def test_are_none_without_samples(self) -> None:
        assert self.columns()[0].stretches == []
