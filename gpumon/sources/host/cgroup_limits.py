"""How many cores a process may use, and whether its cgroup holds it back: cgroup v1 and v2.

Where a cgroup cannot be seen from here, as from inside a container, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from gpumon.sources.host.kept_files import KeptFiles

_MOST_LEVELS: Final = 16


class CgroupCounts(NamedTuple):
    """What the cgroups of a process tell, ``None`` where none does.

    Attributes:
        quota_cores: The least of their quotas: 1 is a core.
        throttled_ns: For how long they have held their tasks back so far.
        memory_stalled_us: For how long somebody in the innermost one waited for memory (PSI),
            microseconds.
    """

    quota_cores: float | None
    throttled_ns: int | None
    memory_stalled_us: int | None


class CgroupLimits:
    """Asks the cgroups of one process, found once.

    Args:
        pid: Whose.
        files: What reads them.
        proc: Where the kernel shows processes.
        root: Where cgroups are mounted.
    """

    def __init__(
        self, pid: int, files: KeptFiles, proc: str = "/proc", root: str = "/sys/fs/cgroup"
    ) -> None:
        self._files = files
        self._v2: list[str] = []
        self._v1_cpu: list[str] = []
        try:
            lines = files.read_once(f"{proc}/{pid}/cgroup").decode("utf-8", "replace").splitlines()
        except OSError:
            return
        for line in lines:
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if not controllers:
                is_hybrid = Path(root, "unified").is_dir()
                self._v2 = list(_levels(f"{root}/unified" if is_hybrid else root, path))
            elif "cpu" in controllers.split(","):
                self._v1_cpu = list(_levels(f"{root}/cpu", path))

    def counts(self) -> CgroupCounts:
        """What they tell now."""
        quotas, throttled_ns = [], []
        for folder in self._v2:
            quotas.append(_quota_v2(self._text(folder, "cpu.max")))
            throttled_us = _value_of(self._text(folder, "cpu.stat"), "throttled_usec")
            throttled_ns.append(None if throttled_us is None else throttled_us * 1_000)
        for folder in self._v1_cpu:
            quota, period = (
                self._text(folder, f"cpu.cfs_{name}_us") for name in ("quota", "period")
            )
            quotas.append(_quota_v1(quota, period))
            throttled_ns.append(_value_of(self._text(folder, "cpu.stat"), "throttled_time"))
        innermost = self._text(self._v2[0], "memory.pressure") if self._v2 else ""
        known_ns = [one for one in throttled_ns if one is not None]
        return CgroupCounts(
            quota_cores=min((one for one in quotas if one is not None), default=None),
            throttled_ns=max(known_ns, default=None),
            memory_stalled_us=stalled_us(innermost),
        )

    def _text(self, folder: str, name: str) -> str:
        try:
            return self._files.read(f"{folder}/{name}").decode("ascii", "replace")
        except OSError:
            return ""


def _levels(mount: str, path: str) -> Iterator[str]:
    """The folders of a cgroup and of those around it, the innermost first."""
    inside = PurePosixPath("/" + path.lstrip("/"))
    if ".." in inside.parts:
        return  # of another namespace: what is there is not to be seen from here
    for level in [inside, *inside.parents][:_MOST_LEVELS]:
        yield f"{mount}{level}".rstrip("/")


def _quota_v2(text: str) -> float | None:
    """Cores in a ``cpu.max``; ``None``: without a limit.

    >>> _quota_v2("150000 100000"), _quota_v2("max 100000")
    (1.5, None)
    """
    words = text.split()
    return _quota_v1(*words) if len(words) == 2 else None


def _quota_v1(quota: str, period: str) -> float | None:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def _value_of(text: str, name: str) -> int | None:
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def stalled_us(pressure: str) -> int | None:
    """For how long somebody was held up so far, by a file of pressure (PSI), microseconds.

    >>> stalled_us("some avg10=0.00 avg60=0.00 avg300=0.00 total=1234")
    1234
    """
    first, _, _ = pressure.partition("\n")
    total = first.rpartition("total=")[2]
    return int(total) if first.startswith("some ") and total.isdigit() else None
