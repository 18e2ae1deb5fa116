"""Specification of packed values: equal when they are unpacked, and small."""

from __future__ import annotations

import sys

from gpumon.core.accounting.packed import Packer
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.phase import IdleCause
from gpumon.pipeline.report_history import snapshot_of
from tests.builders.state import S, healthy_gpu, monitor_state, starved_gpu

TOTALS = GpuTotals(
    observed_ns=9 * S, idle_ns={IdleCause.INPUT_WAIT: S}, gaps=GapTotals(count=1, total_ns=S)
)


class TestAPackedValue:
    def test_is_unpacked_as_an_equal_one(self) -> None:
        packer = Packer()
        values = [snapshot_of(monitor_state(taken_at_ns=at_ns)) for at_ns in (S, 2 * S)]

        packed = [packer.pack(value) for value in values]

        assert [packer.unpack(data) for data in packed] == values

    def test_has_the_same_members_of_enumerations(self) -> None:
        packer = Packer()

        unpacked = packer.unpack(packer.pack(TOTALS))

        assert next(iter(unpacked.idle_ns)) is IdleCause.INPUT_WAIT

    def test_may_hold_mappings_that_cannot_be_changed(self) -> None:
        packer = Packer()

        unpacked = packer.unpack(packer.pack(GpuTotals()))

        assert unpacked == GpuTotals()
        assert unpacked.hanging_idle_ns == {}

    def test_takes_little_room_beside_others_that_are_alike(self) -> None:
        packer = Packer()
        gpus = (starved_gpu(), healthy_gpu()) * 4
        first = packer.pack(snapshot_of(monitor_state(gpus=gpus)))

        later = packer.pack(snapshot_of(monitor_state(gpus=gpus, taken_at_ns=7 * S)))

        assert packer.unpack(first).at_ns != packer.unpack(later).at_ns == 7 * S
        assert sys.getsizeof(later) < 1_000
