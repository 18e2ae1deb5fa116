"""CPU quota, throttling and memory stalls of a process's cgroups, v1 and v2.

A cgroup that is not visible, as from inside a container, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.host.kept_files import KeptFiles

_MAX_LEVELS: Final = 16
_FILES: Final = (
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.stat",
    "memory.pressure",
    "memory.stat",
)


class CgroupLimits:
    """Reads the cgroups of one process, which are found once.

    Ratios and rates are of the time between the last two reads; ``None``: unknown.

    Attributes:
        quota_cores: The smallest of the quotas, in cores; ``None``: there is none.
        throttled_ratio: Part of the time in which a cgroup throttled its tasks.
        stalled_ratio: Part of the time in which a task of the innermost one waited for memory.
        refaults_per_second: Pages that the innermost one dropped and read again.
    """

    def __init__(
        self, pid: int, files: KeptFiles, proc: str = "/proc", root: str = "/sys/fs/cgroup"
    ) -> None:
        """Find the cgroups of ``pid`` among those mounted at ``root``."""
        self._files = files
        self._throttled_ns: int | None = None
        self._stalled_us: int | None = None
        self._refaults: int | None = None
        self._read_ns = 0
        self.quota_cores: float | None = None
        self.throttled_ratio: float | None = None
        self.stalled_ratio: float | None = None
        self.refaults_per_second: float | None = None
        self._v1: list[str] = []
        self._memory: str | None = None  # where memory is accounted for
        self._missing: set[str] = set()  # files that this kernel does not have
        self._v2: list[str] = []
        try:
            cgroups = files.cgroups_of(pid, proc)
        except OSError:
            return
        for controllers, path in cgroups:
            if not controllers:
                is_hybrid = Path(root, "unified").is_dir()
                self._v2 = _levels(f"{root}/unified" if is_hybrid else root, path)
                self._memory = self._memory or next(iter(self._v2), None)
            elif "cpu" in controllers.split(","):
                self._v1 = _levels(f"{root}/cpu", path)
            elif controllers == "memory" and ".." not in path.split("/"):
                self._memory = f"{root}/memory/{path.lstrip('/')}"

    def read(self, now_ns: int) -> None:
        quotas = [_quota(*self._text(folder, "cpu.max").split()) for folder in self._v2]
        quotas += [
            _quota(*(self._text(folder, f"cpu.cfs_{name}_us") for name in ("quota", "period")))
            for folder in self._v1
        ]
        throttled_ns = [
            *(
                _value(self._text(folder, "cpu.stat"), "throttled_usec", 1_000)
                for folder in self._v2
            ),
            *(_value(self._text(folder, "cpu.stat"), "throttled_time", 1) for folder in self._v1),
        ]
        stalled = stalled_us(self._text(self._v2[0], "memory.pressure")) if self._v2 else None
        throttled = max((ns for ns in throttled_ns if ns is not None), default=None)
        refaults = self._refaults_now()
        length_ns = now_ns - self._read_ns
        self.quota_cores = min((quota for quota in quotas if quota is not None), default=None)
        self.throttled_ratio = _part(self._throttled_ns, throttled, length_ns)
        self.stalled_ratio = _part(self._stalled_us, stalled, length_ns // 1_000)
        grown = growth_of(self._refaults, refaults)
        self.refaults_per_second = (
            None if grown is None or length_ns <= 0 else grown * NS_PER_S / length_ns
        )
        self._throttled_ns, self._stalled_us = throttled, stalled
        self._refaults, self._read_ns = refaults, now_ns

    def close(self) -> None:
        for folder in {*self._v1, *self._v2, self._memory or ""}:
            for name in _FILES:
                self._files.let_go(f"{folder}/{name}")

    def _refaults_now(self) -> int | None:
        if self._memory is None:
            return None
        text = self._text(self._memory, "memory.stat")
        return total_of(_value(text, f"workingset_refault_{kind}", 1) for kind in ("anon", "file"))

    def _text(self, folder: str, name: str) -> str:
        path = f"{folder}/{name}"
        if path not in self._missing:
            with suppress(OSError):
                return self._files.read(path).decode("ascii", "replace")
            self._missing.add(path)
        return ""


def _levels(mount: str, path: str) -> list[str]:
    """The folders of a cgroup and of its parents that have limits, the innermost first."""
    inside = PurePosixPath("/" + path.lstrip("/"))
    if ".." in inside.parts:
        return []  # another namespace: not visible from here
    levels = [f"{mount}{level}".rstrip("/") for level in [inside, *inside.parents][:_MAX_LEVELS]]
    return [level for level in levels if Path(level, "cpu.stat").is_file()]


def _quota(*words: str) -> float | None:
    """Cores by a quota and its period, in microseconds; ``None``: no limit.

    >>> _quota("150000", "100000"), _quota("max", "100000"), _quota("-1", "100000"), _quota()
    (1.5, None, None, None)
    """
    try:
        quota, period = map(int, words)
    except ValueError:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _value(text: str, name: str, unit: int) -> int | None:
    value = f"\n{text}".partition(f"\n{name} ")[2].partition("\n")[0]
    return int(value) * unit if value.isdigit() else None


def _part(before: int | None, after: int | None, length: int) -> float | None:
    grown = growth_of(before, after)
    return None if grown is None or length <= 0 else min(1.0, grown / length)


def growth_of(before: int | None, after: int | None) -> int | None:
    """The growth of a counter, which may restart; ``None``: unknown."""
    return None if before is None or after is None else max(0, after - before)


def total_of(amounts: Iterable[int | None]) -> int | None:
    """The sum of the known amounts; ``None`` if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def stalled_us(pressure: str) -> int | None:
    """Total stall time in a pressure file (PSI), microseconds.

    >>> stalled_us("some avg10=0.00 avg60=0.00 avg300=0.00 total=1234")
    1234
    """
    first, _, _ = pressure.partition("\n")
    total = first.rpartition("total=")[2]
    return int(total) if first.startswith("some ") and total.isdigit() else None
