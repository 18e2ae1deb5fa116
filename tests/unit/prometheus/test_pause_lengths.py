"""Lengths of pauses, as Prometheus estimates them from the histogram's buckets."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.core.accounting.histograms import GapHistogram
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from tests.builders.time import s
from tests.unit.prometheus.builders_promtool import Rhythm, Story, Target, grows

QUANTILE = "histogram_quantile({}, sum by (le) (rate(gpumon_gpu_idle_gap_seconds_bucket[5m])))"
WITHIN = 0.25

pytestmark = pytest.mark.prometheus


def paused(length_s: float) -> Target:
    """A GPU with one pause of that length in each ten seconds."""
    histogram, target = GapHistogram(), Target()
    histogram.add(s(length_s))
    counts = (*histogram.snapshot().bucket_counts, 1)
    for bound, count in zip((*map(str, GAP_BUCKETS_SECONDS), "+Inf"), counts, strict=True):
        target.has("gpumon_gpu_idle_gap_seconds_bucket", grows(count / 10), uuid="G", le=bound)
    return target


@pytest.mark.parametrize("length_s", [0.3, 1.0, 1.5, 8.0])
def test_are_right_within_a_quarter(length_s: float, tmp_path: Path) -> None:
    story = Story(10, (paused(length_s),), tests_tiles=True)
    for quantile in (0.5, 0.95):
        off = f"abs(({QUANTILE.format(quantile)}) / {length_s} - 1) <= bool {WITHIN}"
        story.at(9, off, 1)

    assert story.failures(Rhythm(15, 60, 10), tmp_path) == ""


def test_bounds_grow_by_half_at_most() -> None:
    fine = [bound for bound in GAP_BUCKETS_SECONDS if bound <= 10]

    assert fine[0] == 0.25
    assert max(late / early for early, late in pairwise(fine)) <= 1.5
