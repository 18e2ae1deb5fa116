"""Find processes of quiet runs that cannot run: stopped, or in a frozen cgroup."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.owner_quotas import FairTurns
from gpumon.core.ring_format.events import RingReading
from gpumon.core.waits.evidence import ProcessState
from gpumon.sources.host.kept_files import KeptFiles

_MAX_RUNS: Final = 64
"""Runs inspected in one tick. Where more are quiet, they take turns, fairly by owner."""
_WCHAN_AFTER_NS: Final = 10 * NS_PER_S
"""After this time without a record, the kernel function in which a run sleeps is read, too."""
_FIND_EVERY_NS: Final = 60 * NS_PER_S
"""How often the cgroup is looked up again: a process may be moved."""
_STOPPED: Final = "T"
"""Stopped by a signal. Under a debugger it is ``t``, which does not count."""

_RUNS: Final = ProcessState(is_stopped=False)


class _Run:
    """One run that has written nothing new of late."""

    def __init__(self, now_ns: int) -> None:
        self.quiet_from_ns = now_ns
        self.state = _RUNS
        self.freezers: tuple[tuple[str, str], ...] = ()  # files, and their line when frozen
        self.found_ns: int | None = None


class ProcessStates:
    """Reads the state of quiet runs' processes. Never raises."""

    def __init__(
        self, files: KeptFiles, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup"
    ) -> None:
        self._files, self._proc, self._cgroups = files, proc, cgroups
        self._runs: dict[str, _Run] = {}
        self._asked: dict[str, int] = {}  # pids that were inspected, by ring
        self._turns = FairTurns[str](_MAX_RUNS)

    def inspect(self, readings: Iterable[RingReading], now_ns: int) -> dict[str, ProcessState]:
        """The states of quiet runs' processes, by ring key; a run that is left out can run."""
        living = {run.key: run for run in readings if run.alive and run.is_pid_seen}
        for key in self._asked.keys() - living.keys():
            self._files.let_go(self._stat_of(self._asked.pop(key)))
        by_key = {key: run for key, run in living.items() if not run.events}
        for key in self._runs.keys() - by_key.keys():
            self._let_go(self._runs.pop(key))
        for key in self._turns.choose({key: run.owner_uid for key, run in by_key.items()}):
            self._turns.note(key)
            run = self._runs.setdefault(key, _Run(now_ns))
            run.state, self._asked[key] = _RUNS, by_key[key].host_pid
            with suppress(OSError, ValueError):
                run.state = self._state(by_key[key].host_pid, run, now_ns)
        return {key: run.state for key, run in self._runs.items() if run.state != _RUNS}

    def _state(self, pid: int, run: _Run, now_ns: int) -> ProcessState:
        stat = self._files.read(self._stat_of(pid)).decode("ascii", "replace")
        letter = stat.rpartition(") ")[2][:1]
        if not letter:
            raise ValueError("no state")
        is_stopped = letter == _STOPPED or self._is_frozen(pid, run, now_ns)
        sleeps_in = None
        if now_ns - run.quiet_from_ns >= _WCHAN_AFTER_NS and not is_stopped:
            with suppress(OSError):
                text = self._files.read_once(f"{self._proc}/{pid}/wchan").decode("ascii", "replace")
                sleeps_in = text if text.isidentifier() else None
        return ProcessState(is_stopped, sleeps_in)

    def _is_frozen(self, pid: int, run: _Run, now_ns: int) -> bool:
        if run.found_ns is None or now_ns - run.found_ns >= _FIND_EVERY_NS:
            self._let_go(run)
            run.freezers, run.found_ns = self._freezers(pid), now_ns
        for path, frozen in run.freezers:
            with suppress(OSError):
                lines = self._files.read(path).decode("ascii", "replace").splitlines()
                if frozen in lines:
                    return True
        return False

    def _freezers(self, pid: int) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        with suppress(OSError):
            for controllers, path in self._files.cgroups_of(pid, self._proc):
                inside = PurePosixPath("/" + path.lstrip("/"))
                if ".." in inside.parts:
                    continue  # another namespace: not visible from here
                if not controllers:
                    roots = (self._cgroups, f"{self._cgroups}/unified")
                    found += [(f"{root}{inside}/cgroup.events", "frozen 1") for root in roots]
                elif "freezer" in controllers.split(","):
                    found.append((f"{self._cgroups}/freezer{inside}/freezer.state", "FROZEN"))
        return tuple([pair for pair in found if Path(pair[0]).is_file()])

    def _stat_of(self, pid: int) -> str:
        return f"{self._proc}/{pid}/stat"

    def _let_go(self, run: _Run) -> None:
        for path, _ in run.freezers:
            self._files.let_go(path)
