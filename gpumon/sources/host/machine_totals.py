"""Rates of the machine's disks, networks and memory stalls between two inspections."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.sources.host.cgroup_limits import growth_of, stalled_us
from gpumon.sources.host.kept_files import KeptFiles

_MAX_BYTES = 1 << 18
"""/proc/diskstats has about 100 bytes for each disk, partition and loop device."""
_SECTOR_BYTES = 512
"""The unit of /proc/diskstats, whatever a disk's own sectors are."""
_MS_PER_S = 1_000
_US_PER_S = 1_000_000


class MachineRates(NamedTuple):
    """Means since the last inspection; ``None``: unknown. As in ``HostEvidence``."""

    disk_busy_ratio: float | None = None
    disk_read_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    memory_stalled_ratio: float | None = None


class _Counts(NamedTuple):
    at_ns: int
    disks: dict[str, tuple[int, int]]  # busy milliseconds and bytes read, by name
    received: int | None
    memory_stalled_us: int | None


class MachineTotals:
    """Reads the machine's counters once an inspection."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._before: _Counts | None = None

    def forget(self) -> None:
        self._before = None

    def advance(self, now_ns: int, *, with_networks: bool) -> MachineRates:
        before, after = self._before, self._counts(now_ns, with_networks=with_networks)
        self._before = after
        if before is None or after.at_ns <= before.at_ns:
            return MachineRates()
        length_s = (after.at_ns - before.at_ns) / NS_PER_S
        grown = [
            (max(0, busy_ms - before.disks[name][0]), max(0, read - before.disks[name][1]))
            for name, (busy_ms, read) in after.disks.items()
            if name in before.disks
        ]
        stalled = _rate(before.memory_stalled_us, after.memory_stalled_us, length_s)
        return MachineRates(
            disk_busy_ratio=min(1.0, max(busy_ms for busy_ms, _ in grown) / _MS_PER_S / length_s)
            if grown
            else None,
            # An array counts what its disks read again, so the largest is the machine's.
            disk_read_bytes_per_second=max(read for _, read in grown) / length_s if grown else None,
            received_bytes_per_second=_rate(before.received, after.received, length_s),
            memory_stalled_ratio=None if stalled is None else min(1.0, stalled / _US_PER_S),
        )

    def _counts(self, now_ns: int, *, with_networks: bool) -> _Counts:
        return _Counts(
            at_ns=now_ns,
            disks=_disks_of(self._text("diskstats")),
            received=_received() if with_networks else None,
            memory_stalled_us=stalled_us(self._text("pressure/memory")),
        )

    def _text(self, name: str) -> str:
        try:
            raw = KeptFiles.read_once(f"{self._proc}/{name}", _MAX_BYTES)
        except OSError:
            return ""
        return raw.decode("ascii", "replace")


def _disks_of(diskstats: str) -> dict[str, tuple[int, int]]:
    r"""Busy milliseconds, and bytes read, of each disk that ever read anything, by name.

    >>> _disks_of("   8  0 sda 9 0 64 5 1 0 8 1 0 300 6\n   7  0 loop0 0 0 0 0 0 0 0 0 0 0 0\n")
    {'sda': (300, 32768)}
    """
    lines = (line.split() for line in diskstats.splitlines())
    return {
        words[2]: (int(words[12]), int(words[5]) * _SECTOR_BYTES)
        for words in lines
        if len(words) > 12 and words[5] != "0"
    }


def _received() -> int | None:
    import psutil  # takes memory: loaded only if a run waits for a network

    try:
        counted: int = psutil.net_io_counters(nowrap=False).bytes_recv
    except (OSError, RuntimeError, ValueError, AttributeError):
        return None
    return counted


def _rate(before: int | None, after: int | None, length_s: float) -> float | None:
    grown = growth_of(before, after)
    return None if grown is None else grown / length_s
