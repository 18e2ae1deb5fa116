"""Inspect the processes of runs that lose time, once a tick, and the state of quiet ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.owner_quotas import FairTurns
from gpumon.core.phase import STEP_PHASES, TrainingPhase
from gpumon.core.ring_format.events import PresentPhase, RingReading
from gpumon.core.sample import Frame
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.waits.evidence import NO_READING, HostEvidence, HostReading, ProcessState
from gpumon.core.waits.wait_rules import sleeps_for_network
from gpumon.sources.host.kept_files import KeptFiles
from gpumon.sources.host.machine_totals import MachineRates, MachineTotals
from gpumon.sources.host.run_inspection import RunInspection

_MAX_QUIET_RUNS: Final = 64
"""Runs inspected in one tick. Where more are quiet, they take turns, fairly by owner."""
_WCHAN_AFTER_NS: Final = 10 * NS_PER_S
"""After this time without a record, the kernel function in which a run sleeps is read, too."""
_WCHAN_EVERY_NS: Final = 20 * NS_PER_S
"""How often it is read again: it costs as much as all else."""
_LONGEST_REST_NS: Final = 5 * NS_PER_S
"""Between two looks at a quiet run: at most this, and at most a tenth of its quiet time."""
_FIND_EVERY_NS: Final = 60 * NS_PER_S
"""How often the cgroup is looked up again: a process may be moved."""
_STOPPED: Final = "T"
"""Stopped by a signal. Under a debugger it is ``t``, which does not count."""

_RUNS: Final = ProcessState(is_stopped=False)


class _QuietRun:
    """One run that has written nothing new of late."""

    def __init__(self, now_ns: int) -> None:
        self.quiet_from_ns = self.due_ns = now_ns
        self.state = _RUNS
        self.freezers: tuple[tuple[str, str], ...] = ()  # files, and their line when frozen
        self.found_ns: int | None = None
        self.sleeps_in: str | None = None
        self.sleep_due_ns = now_ns + _WCHAN_AFTER_NS


class ProcessStates:
    """Reads the state of quiet runs' processes. Never raises."""

    def __init__(
        self, files: KeptFiles, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup"
    ) -> None:
        self._files, self._proc, self._cgroups = files, proc, cgroups
        self._runs: dict[str, _QuietRun] = {}
        self._asked: dict[str, int] = {}  # pids that were inspected, by ring
        self._turns = FairTurns[str](_MAX_QUIET_RUNS)

    def inspect(self, readings: Iterable[RingReading], now_ns: int) -> dict[str, ProcessState]:
        """The states of quiet runs' processes, by ring key; a run that is left out can run."""
        living = {run.key: run for run in readings if run.alive and run.is_pid_seen}
        for key in self._asked.keys() - living.keys():
            self._files.let_go(self._stat_of(self._asked.pop(key)))
        by_key = {key: run for key, run in living.items() if not run.events}
        for key in self._runs.keys() - by_key.keys():
            self._let_go(self._runs.pop(key))
        due = {
            key: run.owner_uid
            for key, run in by_key.items()
            if key not in self._runs or self._runs[key].due_ns <= now_ns
        }
        for key in self._turns.choose(due):
            self._turns.note(key)
            run = self._runs.setdefault(key, _QuietRun(now_ns))
            run.due_ns = now_ns + min(_LONGEST_REST_NS, (now_ns - run.quiet_from_ns) // 10)
            run.state, self._asked[key] = _RUNS, by_key[key].host_pid
            with suppress(OSError, ValueError):
                run.state = self._state(by_key[key].host_pid, run, now_ns)
        return {key: run.state for key, run in self._runs.items() if run.state != _RUNS}

    def _state(self, pid: int, run: _QuietRun, now_ns: int) -> ProcessState:
        stat = self._files.read(self._stat_of(pid)).decode("ascii", "replace")
        letter = stat.rpartition(") ")[2][:1]
        if not letter:
            raise ValueError("no state")
        is_stopped = letter == _STOPPED or self._is_frozen(pid, run, now_ns)
        if now_ns >= run.sleep_due_ns and not is_stopped:
            run.sleeps_in, run.sleep_due_ns = None, now_ns + _WCHAN_EVERY_NS
            with suppress(OSError):
                text = self._files.read_once(f"{self._proc}/{pid}/wchan").decode("ascii", "replace")
                run.sleeps_in = text if text.isidentifier() else None
        return ProcessState(is_stopped, None if is_stopped else run.sleeps_in)

    def _is_frozen(self, pid: int, run: _QuietRun, now_ns: int) -> bool:
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

    def _let_go(self, run: _QuietRun) -> None:
        for path, _ in run.freezers:
            self._files.let_go(path)


_MAX_RUNS: Final = 32
"""Runs inspected in one tick. Where more wait, they take turns, fairly by owner."""
_MAX_NS: Final = NS_PER_S // 5
"""After this much inspection in a tick, the remaining runs wait for the next one."""
_LEAST_RATIO: Final = 0.01
_BUSY_FROM: Final = 1.0 - DEFAULT_SETTINGS.lost_share
"""A GPU that is busier than this loses too little within steps to inspect its run."""
_WAITS: Final = frozenset({TrainingPhase.INPUT_WAIT})
_LOOKED_AT: Final = _WAITS | STEP_PHASES
_RETRY_NS: Final = 60 * NS_PER_S


class _Run:
    """One living run.

    Attributes:
        key: Key of its ring.
        message: Why it cannot be inspected; ``None``: it can.
    """

    def __init__(self, reading: RingReading, files: KeptFiles, proc: str) -> None:
        self.key = reading.key
        self.message: str | None = None
        self._reading, self._files, self._proc = reading, files, proc
        self._present = PresentPhase(reading.facts.started_ns)
        self._inspection: RunInspection | None = None
        self._retry_ns = 0
        self._spent_ns = 0, 0
        self._read_at_ns = reading.facts.started_ns
        self._waiting_ratio = 0.0
        self._is_new = True

    def must_be_inspected(self, reading: RingReading, *, idles: bool) -> bool:
        """Whether it waited for input since the last tick, or was in a step while a GPU idled.

        True in its first tick: an inspection shows what changed since the one before.
        """
        before, self._reading = self._reading, reading
        before_ns, self._read_at_ns = self._read_at_ns, reading.read_at_ns
        is_quiet = not reading.events and not self._is_new and reading.phase_ns == before.phase_ns
        if is_quiet and self._present.phase not in _LOOKED_AT:  # there may be a hundred
            self.close()
            return False
        self._present.ingest(reading.events)
        waited_before_ns, in_steps_before_ns = self._spent_ns
        waited_ns, in_steps_ns = self._spent_ns = self._spent(reading)
        was_new, self._is_new = self._is_new, False
        length_ns = max(1, reading.read_at_ns - before_ns)
        self._waiting_ratio = min(1.0, max(0, waited_ns - waited_before_ns) / length_ns)
        in_steps = (in_steps_ns - in_steps_before_ns) / length_ns
        loses_time = self._waiting_ratio >= _LEAST_RATIO or (idles and in_steps >= _LEAST_RATIO)
        if loses_time or was_new:
            return True
        self.close()
        return False

    def inspect(self, now_ns: int, machine: MachineRates) -> HostEvidence | None:
        """Evidence on the time since the last tick; ``None``: none, or not yet."""
        if now_ns < self._retry_ns:
            return None
        try:
            if self._inspection is None:
                self._inspection = RunInspection(self._reading, self._files, self._proc)
            self.message = None
            return self._inspection.inspect(
                now_ns,
                self._reading.facts.tid,
                machine,
                waiting_ratio=self._waiting_ratio,
                is_waiting=self._present.phase is TrainingPhase.INPUT_WAIT,
            )
        except (OSError, ValueError) as error:
            self.close()
            self._retry_ns = now_ns + _RETRY_NS
            self.message = f"why {self._reading.facts.run} waits is unknown: {error}"
            return None

    def close(self) -> None:
        if self._inspection is not None:
            self._inspection.close()
            self._inspection = None

    def _spent(self, reading: RingReading) -> tuple[int, int]:
        """Time in waits for input and in steps so far, the phase under way included."""
        open_ns = max(0, reading.known_until_ns - self._present.since_ns)
        waited_ns, in_steps_ns = (
            sum(reading.phase_ns.get(phase, 0) for phase in phases)
            + (open_ns if self._present.phase in phases else 0)
            for phases in (_WAITS, STEP_PHASES)
        )
        return waited_ns, in_steps_ns


class HostReader:
    """Reads kernel evidence on every run that waits for input or loses time in its steps.

    Never raises: where the kernel gives no answer, there is no evidence.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._files = KeptFiles()
        self._machine = MachineTotals(proc)
        self._processes = ProcessStates(self._files, proc)
        self._runs: dict[str, _Run] = {}
        self._turns = FairTurns[str](_MAX_RUNS)
        self._reads_networks = False  # whether a run waits for one
        self._idle_gpus: set[str] = set()  # by the newest samples of each, which may be old

    def inspect(
        self, readings: Sequence[RingReading], frames: Sequence[Frame], now_ns: int
    ) -> HostReading:
        """Inspect the runs once, given the newest reading of every ring and this tick's frames."""
        began_ns = time.perf_counter_ns()
        self._note_idle_gpus(frames)
        if not (readings or self._runs):
            return NO_READING
        living = {reading.key: reading for reading in readings if reading.alive}
        for key in self._runs.keys() - living.keys():
            self._runs.pop(key).close()
        idles = bool(self._idle_gpus)
        processes = self._processes.inspect(living.values(), now_ns)
        candidates = [
            run
            for key, reading in living.items()
            if (run := self._follow(reading)).must_be_inspected(reading, idles=idles)
            and not (key in processes and processes[key].is_stopped)
        ]
        if not candidates:
            self._machine.forget()
            return HostReading(processes=processes) if processes else NO_READING
        machine = self._machine.advance(now_ns, with_networks=self._reads_networks)
        of_run: dict[str, HostEvidence] = {}
        by_key = {run.key: run for run in candidates}
        for key in self._turns.choose({key: living[key].owner_uid for key in by_key}):
            if time.perf_counter_ns() - began_ns >= _MAX_NS:
                break
            self._turns.note(key)
            run = by_key[key]
            evidence = run.inspect(now_ns, machine)
            if evidence is not None:
                of_run[run.key] = evidence
        self._reads_networks = any(map(sleeps_for_network, of_run.values()))
        took_seconds = seconds(time.perf_counter_ns() - began_ns)
        messages = [run.message for run in candidates if run.message is not None]
        return HostReading(
            of_run=of_run,
            processes=processes,
            took_seconds=took_seconds,
            message=next(iter(messages), None),
        )

    def close(self) -> None:
        for run in self._runs.values():
            run.close()
        self._runs.clear()
        self._files.close()

    def _note_idle_gpus(self, frames: Sequence[Frame]) -> None:
        """Samples come every few seconds, and until then those before count."""
        for frame in frames:
            if frame.is_quiet:
                continue
            self._idle_gpus &= {gpu.device.uuid for gpu in frame.gpus}
            for gpu in frame.gpus:
                if any(sample.busy_ratio < _BUSY_FROM for sample in gpu.busy):
                    self._idle_gpus.add(gpu.device.uuid)
                elif gpu.busy:
                    self._idle_gpus.discard(gpu.device.uuid)

    def _follow(self, reading: RingReading) -> _Run:
        run = self._runs.get(reading.key)
        if run is None:
            run = self._runs[reading.key] = _Run(reading, self._files, self._proc)
        return run
