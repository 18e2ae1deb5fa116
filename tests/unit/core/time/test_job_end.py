"""Specification of when a job is over: by the time without work, and by the memory in use."""

from __future__ import annotations

import pytest

from gpumon.core.log.activity import ChangeRoom, GpuActivity, StateChanges
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.time.job_end import MemoryRelease, job_patience_ns
from gpumon.core.time.ledger import GpuLedger
from tests.builders_time import every, s

GIB = 1 << 30
BUSY, IDLE = 0.96, 0.0


def found(*rows: tuple[float, float | None]) -> list[int]:
    """Positions found in rows of a ratio and GiB in use, a second each."""
    return found_in([rows])[0]


def found_in(batches: list[tuple[tuple[float, float | None], ...]]) -> list[list[int]]:
    release, at_s, positions = MemoryRelease(DEFAULT_SETTINGS), 0, []
    for rows in batches:
        samples = [BusySample(s(at_s + n), s(at_s + n + 1), row[0]) for n, row in enumerate(rows)]
        used = [None if row[1] is None else int(row[1] * GIB) for row in rows]
        positions.append(release.positions(samples, used))
        at_s += len(rows)
    return positions


class TestAJob:
    def test_has_ended_where_its_memory_was_given_back(self) -> None:
        assert found((BUSY, 12.0), (IDLE, 12.0), (IDLE, 0.0), (IDLE, 0.0)) == [2]

    def test_has_ended_each_time(self) -> None:
        assert found((BUSY, 12.0), (IDLE, 0.0), (BUSY, 9.0), (IDLE, 0.0)) == [1, 3]

    def test_goes_on_while_its_memory_is_held(self) -> None:
        assert found((BUSY, 12.0), (IDLE, 12.0), (IDLE, 11.0), (BUSY, 12.0)) == []

    def test_goes_on_where_it_gave_back_a_part(self) -> None:
        assert found((BUSY, 12.0), (IDLE, 3.0), (BUSY, 12.0)) == []

    def test_is_not_told_by_a_row_without_memory(self) -> None:
        assert found((BUSY, 12.0), (IDLE, None), (BUSY, 12.0)) == []

    def test_is_not_told_by_a_log_without_memory(self) -> None:
        assert found((BUSY, None), (IDLE, None)) == []

    def test_that_held_next_to_nothing_is_not_told_by_it(self) -> None:
        assert found((BUSY, 0.3), (IDLE, 0.0)) == []

    def test_is_not_over_while_the_gpu_works(self) -> None:
        assert found((BUSY, 12.0), (BUSY, 0.5), (IDLE, 0.5)) == [2]

    def test_is_followed_from_batch_to_batch(self) -> None:
        assert found_in([((BUSY, 12.0),), ((IDLE, 12.0),), ((IDLE, 0.0), (BUSY, 5.0))]) == [
            [], [], [0],
        ]  # fmt: skip


class TestHowLongAJobMayBeIdle:
    @pytest.mark.parametrize(
        ("sample_s", "patience_s"), [(0.1, 60), (1.0, 60), (5.0, 60), (5.1, 61.2), (60.0, 720)]
    )
    def test_is_a_minute_and_never_less_than_twelve_samples(
        self, sample_s: float, patience_s: float
    ) -> None:
        assert job_patience_ns(s(sample_s), DEFAULT_SETTINGS) == s(patience_s)

    @pytest.mark.parametrize(("idle_samples", "is_over"), [(12, False), (13, True)])
    def test_ends_it_for_the_ledger_and_for_the_picture_of_the_states_alike(
        self, idle_samples: int, is_over: bool
    ) -> None:
        samples = every(10.0, [1.0, *[0.0] * idle_samples, 1.0])
        ledger, changes = GpuLedger(), StateChanges(DEFAULT_SETTINGS, ChangeRoom())
        ledger.observe(samples)
        changes.extend(samples)
        changes.finish()

        idle = IdleCause.NOT_IN_USE if is_over else IdleCause.UNKNOWN
        assert ledger.snapshot().idle_ns == {idle: s(10.0 * idle_samples)}
        assert (GpuActivity.OUT_OF_USE in {state for _, state in changes}) == is_over
