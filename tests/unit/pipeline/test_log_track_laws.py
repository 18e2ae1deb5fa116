"""Laws of a GPU of a log: ledger, lane and states agree, however its rows are split."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.log_summary.activity import ChangeRoom, GpuActivity
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.pipeline.log_track import GpuTrack
from tests.builders.time import s

GIB = 1 << 30
BEGAN_S = 1_000


class Row(NamedTuple):
    """A row, and how many times it comes in turn."""

    busy_ratio: float | None
    used_bytes: int | None
    times: int


stories = st.lists(
    st.builds(
        Row,
        st.sampled_from([0.0, 0.0, 0.02, 0.3, 0.6, 0.97, None]),
        st.sampled_from([0, 12 * GIB, 12 * GIB, None]),
        st.integers(1, 30),
    ),
    max_size=60,
)
periods_s = st.sampled_from([0.1, 0.25, 1.0, 5.0, 60.0])


def new_track(*, gpus: int = 1) -> GpuTrack:
    track = GpuTrack(DEFAULT_SETTINGS, None, ChangeRoom())
    track.share_memory(gpus)
    return track


def tracked(story: list[Row], period_s: float, *, gpus: int = 1) -> GpuTrack:
    """All rows of a GPU of a log of so many, taken; the more there are, the fewer wait."""
    track = new_track(gpus=gpus)
    rows = [row for row in story for _ in range(row.times)]
    for at, row in enumerate(rows):
        track.ingest(s(BEGAN_S + at * period_s), row.busy_ratio, row.used_bytes)
    track.finish()
    return track


class TestAGpuOfALog:
    @given(stories, periods_s, st.sampled_from([1, 1_000]))
    def test_has_one_answer_in_ledger_lane_and_states(
        self, story: list[Row], period_s: float, gpus: int
    ) -> None:
        track = tracked(story, period_s, gpus=gpus)

        totals, lane = track.ledger.snapshot(), track.lane.snapshot()
        spans = [(until - at, state) for (at, state), (until, _) in pairwise(track.changes)]
        assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns
        assert totals.pending_ns == 0
        assert sum(lane.observed_ns) == totals.observed_ns
        assert sum(lane.busy_ns) == totals.busy_ns
        assert sum(ns for ns, state in spans if state) == totals.observed_ns
        assert sum(ns for ns, state in spans if state >= GpuActivity.PAUSED) == totals.in_use_ns

    @settings(max_examples=50)
    @given(stories, periods_s, st.integers(1, 300))
    def test_has_the_same_from_rows_in_blocks(
        self, story: list[Row], period_s: float, block: int
    ) -> None:
        one_by_one, in_blocks = tracked(story, period_s), new_track()
        rows = [row for row in story for _ in range(row.times)]
        stamps_ns = [s(BEGAN_S + at * period_s) for at in range(len(rows))]
        for at in range(0, len(rows), block):
            part = rows[at : at + block]
            ratios, used = [row.busy_ratio for row in part], [row.used_bytes for row in part]
            in_blocks.ingest_rows(stamps_ns[at : at + block], ratios, used)
        in_blocks.finish()

        assert in_blocks.ledger.snapshot() == one_by_one.ledger.snapshot()
        assert list(in_blocks.changes) == list(one_by_one.changes)
        assert in_blocks.lane.snapshot() == one_by_one.lane.snapshot()
        assert in_blocks.held == one_by_one.held
        assert in_blocks.holes_ns == one_by_one.holes_ns
        assert in_blocks.samples == one_by_one.samples

    @settings(max_examples=50)
    @given(stories, periods_s)
    def test_has_the_same_beside_a_thousand_others(self, story: list[Row], period_s: float) -> None:
        alone, beside = tracked(story, period_s), tracked(story, period_s, gpus=1_000)

        ledgers = [
            track.ledger.snapshot()._replace(episodes=0, starved_now=False)
            for track in (alone, beside)
        ]
        assert ledgers[0] == ledgers[1]
        assert list(alone.changes) == list(beside.changes)
        assert alone.lane.snapshot() == beside.lane.snapshot()
        assert alone.held == beside.held
