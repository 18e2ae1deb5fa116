"""Specification of the gap histogram."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.histograms import GapHistogram
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from tests.builders.time import s


class TestQuantiles:
    def test_are_absent_without_a_pause(self) -> None:
        gaps = GapHistogram().snapshot()

        assert gaps.p50_ns is None
        assert gaps.p95_ns is None

    @given(st.lists(st.integers(s(0.001), s(3600)), min_size=1, max_size=200))
    def test_are_within_three_percent_of_the_exact_ones(self, lengths: list[int]) -> None:
        histogram = GapHistogram()
        for length_ns in lengths:
            histogram.add(length_ns)

        gaps = histogram.snapshot()

        exact = sorted(lengths)[-(-len(lengths) // 2) - 1]
        assert gaps.p50_ns == pytest.approx(exact, rel=0.03)
        assert gaps.longest_ns == max(lengths)
        assert gaps.total_ns == sum(lengths)


class TestBuckets:
    def test_are_cumulative_and_include_their_bound(self) -> None:
        histogram = GapHistogram()
        for length_s in (0.25, 0.3, 400.0):
            histogram.add(s(length_s))

        counts = dict(zip(GAP_BUCKETS_SECONDS, histogram.snapshot().bucket_counts, strict=True))

        assert counts[0.25] == 1
        assert counts[0.5] == 2
        assert counts[300.0] == 2
        assert histogram.snapshot().count == 3
