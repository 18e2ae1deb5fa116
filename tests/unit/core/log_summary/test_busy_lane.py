"""The lane of a GPU: a log of any length in a bounded number of cells."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.log_summary.busy_lane import BusyLane, Lane
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DetectorSettings

S = 1_000_000_000


def lane_of(*samples: tuple[int, int, float], limit: int = 8) -> Lane:
    lane = BusyLane(limit)
    lane.observe([BusySample(*sample) for sample in samples])
    return lane.snapshot()


@st.composite
def logs(draw: st.DrawFn) -> list[BusySample]:
    """Samples of uneven length with holes between, and nonsense among them."""
    at, samples = draw(st.integers(0, 1 << 55)), []
    for _ in range(draw(st.integers(0, 60))):
        start = at + draw(st.one_of(st.just(0), st.integers(-S, 100 * S)))
        end = start + draw(st.one_of(st.just(S), st.integers(-3, 20 * S)))
        samples.append(BusySample(start, end, draw(st.floats(-0.1, 1.1))))
        at = max(at, end)
    # More than are kept as they are, now and then.
    period_ns = at - samples[0].start_ns if samples else 0
    return [
        BusySample(start + again * period_ns, end + again * period_ns, busy_ratio)
        for again in range(draw(st.integers(1, 5)))
        for start, end, busy_ratio in samples
    ]


class TestALane:
    def test_shares_a_sample_out_among_the_cells_it_lies_in(self) -> None:
        lane = lane_of((100, 108, 0.5))

        assert (lane.start_ns, lane.end_ns, lane.cell_ns) == (100, 108, 1)
        assert lane.observed_ns == (1,) * 8
        assert sum(lane.busy_ns) == 4

    def test_doubles_its_cells_when_the_log_outgrows_them(self) -> None:
        lane = lane_of((0, 4, 1.0), (4, 8, 0.0), (8, 12, 1.0))

        assert lane.cell_ns == 2
        assert lane.busy_ns == (2, 2, 0, 0, 2, 2)

    def test_reports_a_little_work_from_none(self) -> None:
        lane = lane_of((0, 2, 0.06), (2, 4, 0.04), (4, 8, 0.0))

        assert lane.active_ns == (1, 1, 0, 0, 0, 0, 0, 0)

    def test_takes_what_is_just_at_the_threshold_for_no_work(self) -> None:
        lane = BusyLane(8, DetectorSettings(active_above=0.25))
        lane.observe([BusySample(0, 4, 0.25), BusySample(4, 8, 0.26)])

        assert lane.snapshot().active_ns == (0, 0, 0, 0, 1, 1, 1, 1)

    def test_takes_a_hole_of_years(self) -> None:
        lane = lane_of((0, S, 1.0), (10**18, 10**18 + S, 1.0))

        assert len(lane.observed_ns) <= 8
        assert sum(lane.observed_ns) == 2 * S

    def test_reports_a_short_burst_in_a_long_log_by_its_place(self) -> None:
        # 700 comes long after the first samples, which are kept as they are.
        samples = [(second * S, (second + 1) * S, float(second == 700)) for second in range(1000)]
        lane = lane_of(*samples, limit=2_000)

        busy = [cell for cell, busy_ns in enumerate(lane.busy_ns) if busy_ns]
        assert len(busy) <= 3
        assert busy[0] * lane.cell_ns <= 700 * S < (busy[0] + 1) * lane.cell_ns

    @pytest.mark.parametrize("seconds", [3, 1_999, 2_001, 9_000])
    def test_has_at_least_half_its_cells_whatever_the_length(self, seconds: int) -> None:
        lane = BusyLane()
        lane.observe([BusySample(at * S, (at + 1) * S, 0.5) for at in range(seconds)])

        assert 1_000 <= len(lane.snapshot().observed_ns) <= 2_000

    @settings(max_examples=30)
    @given(logs(), st.integers(2, 40))
    def test_sums_to_what_the_ledger_sums_to(self, samples: list[BusySample], limit: int) -> None:
        lane, ledger = BusyLane(limit), GpuLedger()
        lane.observe(samples)
        ledger.observe(samples)

        seen, totals = lane.snapshot(), ledger.snapshot()
        assert sum(seen.observed_ns) == totals.observed_ns
        assert sum(seen.busy_ns) == totals.busy_ns
        assert sum(seen.active_ns) <= totals.in_use_ns
        assert len(seen.observed_ns) == len(seen.busy_ns) <= limit

    @settings(max_examples=30)
    @given(logs())
    def test_has_no_cell_busier_than_observed_or_fuller_than_wide(
        self, samples: list[BusySample]
    ) -> None:
        lane = lane_of(*samples, limit=16)

        cells = zip(lane.observed_ns, lane.busy_ns, lane.active_ns, strict=True)
        for observed_ns, busy_ns, active_ns in cells:
            assert 0 <= busy_ns <= observed_ns <= lane.cell_ns
            assert 0 <= active_ns <= observed_ns

    @settings(max_examples=30)
    @given(logs(), st.data())
    def test_is_the_same_however_the_samples_are_cut_into_batches(
        self, samples: list[BusySample], data: st.DataObject
    ) -> None:
        cut = data.draw(st.integers(0, len(samples)))
        lane = BusyLane(16)
        lane.observe(samples[:cut])
        lane.observe(samples[cut:])

        assert lane.snapshot() == lane_of(*samples, limit=16)
