"""Specification of the machine's totals: rates between two looks, and none where none is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineRates, MachineTotals
from tests.builders_proc import MadeUpProc
from tests.builders_time import s

Disks = dict[str, tuple[int, int]]
"""Milliseconds for which each was busy, and bytes read from it."""
Set = Callable[[Disks | None, int], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Set:
    """Sets what psutil tells of the disks and of bytes received."""

    def tell(disks: Disks | None, received: int = 0) -> None:
        told = None if disks is None else {
            name: SimpleNamespace(busy_time=busy_ms, read_bytes=read)
            for name, (busy_ms, read) in disks.items()
        }  # fmt: skip
        monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: told)
        monkeypatch.setattr(
            psutil, "net_io_counters", lambda **_: SimpleNamespace(bytes_recv=received)
        )

    return tell


@pytest.fixture
def totals(tmp_path: Path) -> MachineTotals:
    return MachineTotals(KeptFiles(), str(MadeUpProc(tmp_path / "proc").folder))


def read(totals: MachineTotals, at_s: float) -> MachineRates:
    return totals.advance(s(at_s), with_networks=True)


class TestRates:
    def test_are_of_the_time_between_two_looks(self, totals: MachineTotals, machine: Set) -> None:
        machine({"sda": (100, 1_000)}, 50)
        first = read(totals, 1)
        machine({"sda": (1_100, 9_000)}, 250)

        assert first == MachineRates()
        assert read(totals, 3) == MachineRates(
            disk_busy_ratio=0.5, disk_read_bytes_per_second=4_000.0, received_bytes_per_second=100.0
        )

    def test_are_those_of_the_busiest_disk_and_no_sum(
        self, totals: MachineTotals, machine: Set
    ) -> None:
        """A disk of device-mapper counts once more what the disks beneath it read."""
        machine({"sda": (0, 0), "dm-0": (0, 0), "sdb": (0, 0)}, 0)
        read(totals, 1)
        machine({"sda": (900, 5_000), "dm-0": (950, 5_000), "sdb": (10, 1)}, 0)

        rates = read(totals, 2)

        assert rates.disk_busy_ratio == pytest.approx(0.95)
        assert rates.disk_read_bytes_per_second == 5_000.0

    def test_never_exceed_the_whole(self, totals: MachineTotals, machine: Set) -> None:
        machine({"sda": (0, 0)}, 0)
        read(totals, 1)
        machine({"sda": (1_300, 0)}, 0)

        assert read(totals, 2).disk_busy_ratio == 1.0

    @pytest.mark.parametrize("disks", [None, {}])
    def test_of_a_machine_without_disks_are_not_known(
        self, totals: MachineTotals, machine: Set, disks: Disks | None
    ) -> None:
        machine(disks, 0)
        read(totals, 1)

        assert read(totals, 2).disk_busy_ratio is None

    def test_of_networks_are_asked_only_where_they_matter(
        self, totals: MachineTotals, machine: Set
    ) -> None:
        machine({}, 100)
        totals.advance(s(1), with_networks=False)

        assert read(totals, 2).received_bytes_per_second is None
        assert read(totals, 3).received_bytes_per_second == 0.0

    def test_begin_anew_after_a_time_without_looks(
        self, totals: MachineTotals, machine: Set
    ) -> None:
        machine({"sda": (0, 0)}, 0)
        read(totals, 1)
        totals.forget()

        assert read(totals, 9) == MachineRates()

    def test_are_unknown_where_psutil_cannot_read(
        self, totals: MachineTotals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuses(**_: object) -> None:
            raise RuntimeError("no /proc/diskstats")

        monkeypatch.setattr(psutil, "disk_io_counters", refuses)
        read(totals, 1)

        assert read(totals, 2) == MachineRates()


class TestMemory:
    def test_stalls_for_a_part_of_the_look(
        self, tmp_path: Path, machine: Set, totals: MachineTotals
    ) -> None:
        machine({}, 0)
        pressure = tmp_path / "proc" / "pressure" / "memory"
        pressure.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=100\nfull total=9\n")
        read(totals, 1)
        pressure.write_text("some avg10=9.00 avg60=0.00 avg300=0.00 total=250100\nfull total=9\n")

        assert read(totals, 2).memory_stalled_ratio == pytest.approx(0.25)

    def test_is_unknown_where_the_kernel_counts_no_pressure(
        self, machine: Set, totals: MachineTotals
    ) -> None:
        machine({}, 0)
        read(totals, 1)

        assert read(totals, 2).memory_stalled_ratio is None
