"""Tests of machine totals: rates between two inspections, and none if unknown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gpumon.sources.host.machine_totals import MachineRates, MachineTotals
from tests.builders.proc import FakeProc
from tests.builders.time import s

Disks = dict[str, tuple[int, int]]
"""Milliseconds for which each was busy, and bytes read from it."""
Set = Callable[[Disks | None, int], None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Set:
    """Set the kernel's disk counters, and psutil's bytes received."""
    proc = FakeProc(tmp_path / "proc")

    def set_counters(disks: Disks | None, received: int = 0) -> None:
        lines = [
            f"   8  0 {name} 9 0 {read // 512} 5 0 0 0 0 0 {busy_ms} 6 0 0 0 0\n"
            for name, (busy_ms, read) in (disks or {}).items()
        ]
        if disks is not None:
            (proc.folder / "diskstats").write_text("".join(lines))
        monkeypatch.setattr(
            psutil, "net_io_counters", lambda **_: SimpleNamespace(bytes_recv=received)
        )

    return set_counters


@pytest.fixture
def totals(tmp_path: Path) -> MachineTotals:
    return MachineTotals(str(tmp_path / "proc"))


def read(totals: MachineTotals, at_s: float) -> MachineRates:
    return totals.advance(s(at_s), with_networks=True)


class TestRates:
    def test_are_of_the_time_between_two_inspections(
        self, totals: MachineTotals, machine: Set
    ) -> None:
        machine({"sda": (100, 1_024)}, 50)
        first = read(totals, 1)
        machine({"sda": (1_100, 9_216)}, 250)

        assert first == MachineRates()
        assert read(totals, 3) == MachineRates(
            disk_busy_ratio=0.5, disk_read_bytes_per_second=4_096.0, received_bytes_per_second=100.0
        )

    def test_are_those_of_the_busiest_disk(self, totals: MachineTotals, machine: Set) -> None:
        """A disk of device-mapper counts once more what the disks beneath it read."""
        machine(dict.fromkeys(("sda", "dm-0", "sdb"), (0, 512)), 0)
        read(totals, 1)
        machine({"sda": (900, 5_632), "dm-0": (950, 5_632), "sdb": (10, 1_024)}, 0)

        rates = read(totals, 2)

        assert rates.disk_busy_ratio == pytest.approx(0.95)
        assert rates.disk_read_bytes_per_second == 5_120.0

    def test_are_never_negative_after_a_restart(self, totals: MachineTotals, machine: Set) -> None:
        machine({"sda": (2**32 - 5, 10_240)}, 0)
        read(totals, 1)
        machine({"sda": (3, 512)}, 0)

        assert read(totals, 2)[:2] == (0.0, 0.0)

    def test_of_networks_are_read_only_on_request(
        self, totals: MachineTotals, machine: Set
    ) -> None:
        machine({}, 100)
        totals.advance(s(1), with_networks=False)

        assert read(totals, 2).received_bytes_per_second is None
        assert read(totals, 3).received_bytes_per_second == 0.0


class TestMemory:
    def test_stalls_are_a_ratio_of_the_time(
        self, tmp_path: Path, machine: Set, totals: MachineTotals
    ) -> None:
        machine({}, 0)
        pressure = tmp_path / "proc" / "pressure" / "memory"
        pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=100\nfull total=9\n")
        read(totals, 1)
        pressure.write_text("some avg10=9.00 avg60=0.00 avg300=0.00 total=250100\nfull total=9\n")

        assert read(totals, 2).memory_stalled_ratio == pytest.approx(0.25)
