"""The ``process_*`` metrics of this process, as all Prometheus client libraries have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.outlets.metrics.metric_table import MetricKind, MetricSpec

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE

PROCESS_METRICS: Final = tuple(
    MetricSpec(name=f"process_{name}", kind=kind, help=text, group="process", read=None)
    for name, kind, text in (
        ("virtual_memory_bytes", _GAUGE, "Virtual memory size in bytes."),
        ("resident_memory_bytes", _GAUGE, "Resident memory size in bytes."),
        ("start_time_seconds", _GAUGE, "Start time of the process since unix epoch in seconds."),
        ("cpu_seconds_total", _COUNTER, "Total user and system CPU time spent in seconds."),
        ("open_fds", _GAUGE, "Number of open file descriptors."),
        ("max_fds", _GAUGE, "Maximum number of open file descriptors."),
    )
)  # fmt: skip

# Positions in /proc/PID/stat after the name in parentheses.
_USER_TICKS, _SYSTEM_TICKS, _START_TICKS, _VIRTUAL_BYTES, _RESIDENT_PAGES = 11, 12, 19, 20, 21
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessReader:
    """Reads the values of ``PROCESS_METRICS``.

    The boot time is read once, so that setting the clock does not change the start time.

    Args:
        proc: procfs.
    """

    def __init__(self, proc: Path) -> None:
        self._self = proc / "self"
        self._boot_time_s = _boot_time_s(proc)

    def read(self) -> Iterator[float]:
        """The values, in the order of the metrics; none without a procfs.

        Raises:
            OSError: A file cannot be read.
            ValueError: A file is not as expected.
            IndexError: The same.
        """
        if self._boot_time_s is None:
            return
        fields = (self._self / "stat").read_bytes().rpartition(b")")[2].split()
        yield float(fields[_VIRTUAL_BYTES])
        yield float(fields[_RESIDENT_PAGES]) * _PAGE_BYTES
        yield float(fields[_START_TICKS]) / _TICKS_A_SECOND + self._boot_time_s
        yield (float(fields[_USER_TICKS]) + float(fields[_SYSTEM_TICKS])) / _TICKS_A_SECOND
        yield float(sum(1 for _ in (self._self / "fd").iterdir()))
        yield _max_fds((self._self / "limits").read_text())


def _boot_time_s(proc: Path) -> float | None:
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def _max_fds(limits: str) -> float:
    line = next(line for line in limits.splitlines() if line.startswith("Max open files"))
    return float(line.split()[3])
