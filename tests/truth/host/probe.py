"""The kernel's view of a run, read independently of gpumon.

It verifies each condition: who computes, who waits for a core, who reads.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_LOOKS_EVERY_S: Final = 0.1
_KINDS: Final = ("main", "threads", "children", "queued")


class Seen(NamedTuple):
    """A run's tasks over a while; rates are per second.

    Attributes:
        cores: Cores wanted by ``main`` (the training thread), ``threads`` (the others of its
            process) and ``children`` (all processes below it); ``queued``: the part in the
            run queue.
        switches: Voluntary switches of all but the training thread.
        read_mb: Megabytes read from devices by all of them.
        faults: Major faults of all of them.
        main_was: Most frequent states and kernel functions of the training thread.
        others_were: The same for child processes, and threads that ran or waited for a disk.
    """

    cores: Mapping[str, float]
    switches: float
    read_mb: float
    faults: float
    main_was: str
    others_were: str

    def __str__(self) -> str:
        cores = ", ".join(f"{kind} {cores:.2f}" for kind, cores in self.cores.items())
        return (
            f"cores {cores}; a second: {self.switches:.0f} switches, {self.read_mb:.1f} MB, "
            f"{self.faults:.0f} major faults; main: {self.main_was}; others: {self.others_were}"
        )


class _Task(NamedTuple):
    ran_ns: int
    queued_ns: int
    switches: int
    faults: int


class Probe:
    """Samples ten times a second."""

    def __init__(self) -> None:
        self._process, self._took_s = 0, 0.0
        self._first: dict[tuple[int, int], _Task] = {}
        self._last: dict[tuple[int, int], _Task] = {}
        self._read_bytes: dict[int, tuple[int, int]] = {}
        self._main_places: Counter[str] = Counter()
        self._other_places: Counter[str] = Counter()

    @contextmanager
    def looking(self, process: int) -> Iterator[None]:
        """Sample that process until the end of the block."""
        over, began_s = threading.Event(), time.monotonic()
        self._process = process

        def look() -> None:
            while not over.wait(_LOOKS_EVERY_S):
                self._look()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._took_s = time.monotonic() - began_s

    def seen(self) -> Seen:
        sums: Counter[str] = Counter()
        for (process, task), last in self._last.items():
            first = self._first[process, task]
            ran_ns, queued_ns = last.ran_ns - first.ran_ns, last.queued_ns - first.queued_ns
            is_main = task == self._process
            kind = "main" if is_main else "threads" if process == self._process else "children"
            sums[kind] += ran_ns + queued_ns
            sums["queued"] += queued_ns
            sums["faults"] += last.faults - first.faults
            sums["switches"] += 0 if is_main else last.switches - first.switches
        read = sum(last - first for first, last in self._read_bytes.values())
        return Seen(
            {kind: sums[kind] / 1e9 / self._took_s for kind in _KINDS},
            switches=sums["switches"] / self._took_s,
            read_mb=read / 1e6 / self._took_s,
            faults=sums["faults"] / self._took_s,
            main_was=_most_often(self._main_places),
            others_were=_most_often(self._other_places),
        )

    def _look(self) -> None:
        waiting = [self._process]
        while waiting:
            process = waiting.pop()
            with suppress(OSError, IndexError, ValueError):
                self._look_at(process)
                for children in (_PROC / str(process) / "task").glob("*/children"):
                    waiting += map(int, children.read_text().split())

    def _look_at(self, process: int) -> None:
        folder = _PROC / str(process)
        io = (folder / "io").read_text().split()
        read = int(io[io.index("read_bytes:") + 1])
        self._read_bytes[process] = (self._read_bytes.get(process, (read, read))[0], read)
        for task in (folder / "task").iterdir():
            with suppress(OSError, IndexError, ValueError):
                self._look_at_task(process, task)

    def _look_at_task(self, process: int, folder: Path) -> None:
        ran_ns, queued_ns, _ = map(int, (folder / "schedstat").read_text().split())
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2]
        key = process, int(folder.name)
        task = _Task(ran_ns, queued_ns, int(status.split()[0]), int(stat[9]))
        was = self._last.get(key)
        self._first.setdefault(key, task)
        self._last[key] = task
        if was is not None:
            place = stat[0] if stat[0] == "R" else f"{stat[0]} {(folder / 'wchan').read_text()}"
            if key[1] == self._process:
                self._main_places[place] += 1
            elif process != self._process or task.ran_ns > was.ran_ns or stat[0] == "D":
                self._other_places[place] += 1


def _most_often(places: Counter[str]) -> str:
    return ", ".join(
        f"{place} {count / places.total():.0%}" for place, count in places.most_common(3)
    )
