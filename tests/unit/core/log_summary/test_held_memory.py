"""Specification of memory held: only while nothing ran for so long that no job was there."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.log_summary.held_memory import HeldMemory, HeldMemoryTracker
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import every, s

GIB = 1 << 30
MUCH = 40 * GIB


def held(
    ratios: Sequence[float], used: Sequence[int | None] | int = MUCH, period_s: float = 1.0
) -> HeldMemory:
    tracker = HeldMemoryTracker(DEFAULT_SETTINGS)
    used_bytes = [used] * len(ratios) if isinstance(used, int) else used
    tracker.observe(every(period_s, ratios), used_bytes)
    return tracker.finish()


class TestMemory:
    def test_is_held_while_nothing_runs_for_longer_than_a_job_pauses(self) -> None:
        assert held([1] * 9 + [0] * 100 + [1] * 9 + [0] * 70) == (s(170), s(100), MUCH)

    def test_is_not_held_by_a_job_that_pauses(self) -> None:
        assert held([1, *[0] * 59] * 20) == HeldMemory()
        assert held([1, 0, 0] * 20, period_s=59) == HeldMemory()

    def test_is_not_known_to_be_held_from_fewer_than_twelve_samples(self) -> None:
        assert held([0] * 11, period_s=10) == HeldMemory()
        assert held([0] * 12, period_s=10) == (s(120), s(120), MUCH)

    def test_is_held_from_a_minute_on(self) -> None:
        assert held([0] * 59) == HeldMemory()
        assert held([0] * 60) == (s(60), s(60), MUCH)

    def test_is_not_known_to_be_held_where_a_row_lacks_it(self) -> None:
        assert held([0] * 201, [MUCH] * 100 + [None] + [MUCH] * 100) == (s(200), s(100), MUCH)

    def test_is_held_on_where_a_few_rows_are_missing_which_do_not_count(self) -> None:
        tracker = HeldMemoryTracker(DEFAULT_SETTINGS)

        tracker.observe(every(1, [0] * 50) + every(1, [0] * 40, start_s=53), [MUCH] * 90)

        assert tracker.finish() == (s(90), s(90), MUCH)


class TestLaws:
    @given(
        st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([None, 0, MUCH])),
                 max_size=60),
        st.integers(1, 60),
    )  # fmt: skip
    def test_it_does_not_matter_in_how_many_pieces_samples_come(
        self, rows: list[tuple[float, int | None]], batch: int
    ) -> None:
        samples, used = every(30.0, [ratio for ratio, _ in rows]), [used for _, used in rows]
        tracker = HeldMemoryTracker(DEFAULT_SETTINGS)

        for at in range(0, len(rows), batch):
            tracker.observe(samples[at : at + batch], used[at : at + batch])

        found = tracker.finish()
        assert found == held([ratio for ratio, _ in rows], used, 30.0)
        assert found.longest_ns <= found.idle_ns <= s(30) * len(rows)
        assert bool(found.idle_ns) == bool(found.peak_bytes)
