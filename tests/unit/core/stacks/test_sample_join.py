"""A stack sample is evidence on idle time only if all windows that cover it were idle."""

from __future__ import annotations

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_join import SampleJoin, SampleKind

IDLE, BUSY, MIXED = SampleKind.IDLE, SampleKind.BUSY, SampleKind.MIXED
UNOBSERVED = SampleKind.UNOBSERVED


def windows(*ratios: float, from_ns: int = 0) -> list[BusySample]:
    """Windows of 100 ns."""
    starts = range(from_ns, from_ns + 100 * len(ratios), 100)
    return [
        BusySample(start, start + 100, ratio) for start, ratio in zip(starts, ratios, strict=True)
    ]


def kinds(join: SampleJoin[str], ratios: list[float], now_ns: int = 1_000) -> list[SampleKind]:
    return [joined.kind for joined in join.ingest(windows(*ratios), now_ns)]


class TestAStackSample:
    @pytest.mark.parametrize(
        ("ratios", "kind"),
        [
            ([0.0, 0.05, 0.0], IDLE),
            ([1.0, 0.9, 1.0], BUSY),
            ([0.0, 0.5, 0.0], MIXED),
            ([0.0, 0.06, 0.0], MIXED),
            ([1.0, 0.89, 1.0], MIXED),
        ],
    )
    def test_is_of_the_kind_of_its_window(self, ratios: list[float], kind: SampleKind) -> None:
        join: SampleJoin[str] = SampleJoin()
        join.add(120, 180, "stacks")

        assert kinds(join, ratios) == [kind]

    def test_is_mixed_across_work_and_pause(self) -> None:
        join: SampleJoin[str] = SampleJoin()
        join.add(150, 250, "stacks")

        assert kinds(join, [1.0, 0.0, 1.0]) == [MIXED]

    def test_waits_until_its_windows_are_known(self) -> None:
        join: SampleJoin[str] = SampleJoin()
        join.add(150, 250, "stacks")

        assert join.ingest(windows(0.0, 0.0), 1_000) == []
        assert [one.kind for one in join.ingest(windows(0.0, from_ns=200), 1_000)] == [IDLE]
        assert len(join) == 0

    def test_in_a_hole_between_windows_is_no_evidence(self) -> None:
        join: SampleJoin[str] = SampleJoin()
        join.add(150, 250, "stacks")

        join.ingest(windows(0.0), 1_000)
        assert [one.kind for one in join.ingest(windows(0.0, from_ns=300), 1_000)] == [UNOBSERVED]

    def test_without_windows_is_given_up_after_a_minute(self) -> None:
        join: SampleJoin[str] = SampleJoin()
        join.add(150, 250, "stacks")

        assert join.ingest([], 59 * NS_PER_S) == []
        assert [one.kind for one in join.ingest([], 61 * NS_PER_S)] == [UNOBSERVED]
