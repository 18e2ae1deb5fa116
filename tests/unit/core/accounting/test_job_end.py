"""Specification of the end of a job: by time without work, and by memory in use."""

from __future__ import annotations

import pytest

from gpumon.core.accounting.job_end import MemoryRelease
from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.log_summary.activity import ChangeBudget, GpuActivity, StateChanges
from gpumon.core.phase import IdleCause
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from tests.builders.time import every, s

GIB = 1 << 30
BUSY, IDLE = 0.96, 0.0

Row = tuple[float, float | None]
"""A ratio, and GiB in use."""


def found_in(*batches: list[Row]) -> list[list[int]]:
    """Positions found in each batch of rows."""
    release, positions = MemoryRelease(DEFAULT_SETTINGS), []
    for rows in batches:
        used = [None if gib is None else int(gib * GIB) for _, gib in rows]
        positions.append(release.positions([ratio for ratio, _ in rows], used))
    return positions


ENDS: dict[str, tuple[list[Row], list[int]]] = {
    "its memory was given back": ([(BUSY, 12), (IDLE, 12), (IDLE, 0), (IDLE, 0)], [2]),
    "each time": ([(BUSY, 12), (IDLE, 0), (BUSY, 9), (IDLE, 0)], [1, 3]),
    "the GPU has ceased to work": ([(BUSY, 12), (BUSY, 0.5), (IDLE, 0.5)], [2]),
    "never while its memory is held": ([(BUSY, 12), (IDLE, 12), (IDLE, 11), (BUSY, 12)], []),
    "never for a part of it": ([(BUSY, 12), (IDLE, 3), (BUSY, 12)], []),
    "never by a row without memory": ([(BUSY, 12), (IDLE, None), (BUSY, 12)], []),
    "never by a log without memory": ([(BUSY, None), (IDLE, None)], []),
    "never where it held next to nothing": ([(BUSY, 0.3), (IDLE, 0)], []),
}


class TestAJob:
    @pytest.mark.parametrize("where", ENDS)
    def test_has_ended_where(self, where: str) -> None:
        rows, positions = ENDS[where]

        assert found_in(rows) == [positions]


class TestHowLongAJobMayBeIdle:
    @pytest.mark.parametrize(("idle_samples", "is_over"), [(12, False), (13, True)])
    def test_ends_it_in_the_ledger_and_in_the_state_changes(
        self, idle_samples: int, is_over: bool
    ) -> None:
        samples = every(10.0, [1.0, *[0.0] * idle_samples, 1.0])
        ledger, changes = GpuLedger(), StateChanges(DEFAULT_SETTINGS, ChangeBudget())
        ledger.observe(samples)
        changes.observe(samples)
        changes.finish()

        idle = IdleCause.NOT_IN_USE if is_over else IdleCause.UNKNOWN
        assert ledger.snapshot().idle_ns == {idle: s(10.0 * idle_samples)}
        assert (GpuActivity.OUT_OF_USE in {state for _, state in changes}) == is_over
