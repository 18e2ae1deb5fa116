"""Takes stack samples of the processes on idle GPUs, on a thread of its own.

Few are enough: one for a short pause, and one every 2 to 10 s of a long one. While a GPU works,
one a minute shows what its process does then.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Final, NamedTuple, Protocol

from gpumon.core.accounting.seen_pauses import interval_ns
from gpumon.core.clock import NS_PER_S, Clock
from gpumon.core.owner_quotas import FairTurns
from gpumon.core.sample import Frame, ProcessSample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.stacks.reading import StacksReading
from gpumon.core.stacks.stack import StackSample
from gpumon.core.state import STACKS, CollectorState

MOST_CPU_RATIO: Final = 0.005
"""Share of a core that all samples may take, py-spy's own time included."""
_SAVED_CPU_S: Final = 0.5
"""How much CPU time may be saved up while there is no pause."""
_FIRST_CREDIT_S: Final = 0.1
_FIRST_COST_S: Final = 0.05
_LEAST_INTERVAL_NS: Final = 2 * NS_PER_S
_SEEN_AFTER_NS: Final = NS_PER_S // 2
"""How long a pause has lasted, at most, when it is seen."""
_LONGEST_DELAY_NS: Final = NS_PER_S
_AT_WORK_INTERVAL_NS: Final = 60 * NS_PER_S
_CHECK_AGAIN_NS: Final = 60 * NS_PER_S
_FORGET_NS: Final = 600 * NS_PER_S
_STILL_THERE_NS: Final = 5 * NS_PER_S
_MOST_A_TICK: Final = 4
_REPORTED_FAILURES: Final = 3
"""In a row: of a process that works, one in ten fails. After as many it is tried once a minute."""
_LATE_NS: Final = NS_PER_S
"""While a sample takes longer, no other is requested."""
_GIVEN_UP_NS: Final = 3 * NS_PER_S
"""Driver samples wait no longer for a stack sample, and one that has not begun is not taken."""
_STOP_PATIENCE_S: Final = 1.5


class StackReader(Protocol):
    """Reads the stacks of a process; used on one thread."""

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all samples so far."""
        ...

    def read(self, pid: int) -> StackSample:
        """Take a sample; never raises."""
        ...


MayRead = Callable[[ProcessSample], str | None]
"""Why the stacks of a process on a GPU are not read, as a sentence; ``None``: they are."""


class _Target:
    """One process on GPUs that may be sampled.

    Attributes:
        idle_from_ns: Since when its GPUs idle; ``None``: they work.
        delay_ns: How long after that the first sample of the pause is due.
        sampled_at_ns: When it was sampled last; ``None``: in no pause so far.
        failures: How many of its samples have failed in a row.
        uid: Its user.
    """

    def __init__(self, uid: int | None) -> None:
        self.uid = uid
        self.failures = 0
        self.idle_from_ns: int | None = None
        self.delay_ns = 0
        self._began_ns = self._idle_until_ns = 0
        self.sampled_at_ns: int | None = None
        self.seen_at_ns = 0
        self.checked_at_ns: int | None = None
        self.refusal: str | None = None

    def update(self, now_ns: int, *, is_idle: bool, random: Random) -> None:
        """Follow its pauses.

        A sample at the beginning of each pause would never show what follows there. So it comes at
        a random time within the length of the pause before, as far as that was seen.
        """
        if not is_idle:
            self.idle_from_ns = None
        elif self.idle_from_ns is None:
            seen_ns = self._seen_ns
            self.delay_ns = max(0, round(random.uniform(-_SEEN_AFTER_NS, seen_ns)))
            self.idle_from_ns = self._began_ns = self._idle_until_ns = now_ns
        else:
            self._idle_until_ns = now_ns

    @property
    def _seen_ns(self) -> int:
        """For how long the pause before was seen, if a delay of that length is no loss."""
        return min(self._idle_until_ns - self._began_ns, _LONGEST_DELAY_NS)

    def is_due(self, now_ns: int) -> bool:
        last_ns, idle_ns = self.sampled_at_ns, self.idle_from_ns
        if last_ns is None:
            return True
        if idle_ns is None or self.failures >= _REPORTED_FAILURES:
            return now_ns - last_ns >= _AT_WORK_INTERVAL_NS
        if last_ns < idle_ns:
            is_apart = now_ns - last_ns >= _LEAST_INTERVAL_NS
            return is_apart and now_ns - idle_ns >= self.delay_ns
        return now_ns - last_ns >= interval_ns(last_ns - idle_ns)


class _Request(NamedTuple):
    pid: int
    uid: int | None
    uuids: tuple[str, ...]
    at_ns: int


class StackSampler:
    """Decides which processes to sample, and collects what came.

    Never delays a tick, and never raises.

    Args:
        reader: Used on the sampler's own thread only.
        clock: The monotonic clock.
        may_read: Decides for each process, again every minute.
    """

    def __init__(self, reader: StackReader, clock: Clock, may_read: MayRead) -> None:
        self._reader, self._clock, self._may_read = reader, clock, may_read
        self._random = Random()
        self._began_ns = clock.monotonic_ns()
        self._targets: dict[int, _Target] = {}
        self._pending: list[_Request] = []
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[StackSample | None] = queue.SimpleQueue()
        self._turns = FairTurns[int](_MOST_A_TICK)
        self._taken = self._failed = self._failed_in_a_row = 0
        self._spent_before_s = 0.0
        self._failure: str | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpumon-stacks", daemon=True)
        self._thread.start()

    def collect(self) -> StacksReading:
        """The samples that have come since the last call, and those that are yet to come."""
        samples = tuple(self._answered())
        now_ns = self._clock.monotonic_ns()
        awaited = [one for one in self._pending if now_ns - one.at_ns <= _GIVEN_UP_NS]
        pending_ns = {uuid: one.at_ns for one in reversed(awaited) for uuid in one.uuids}
        return StacksReading(samples, pending_ns)

    def collector_state(self) -> CollectorState:
        """Its message is why stacks are not read now."""
        now_ns = self._clock.monotonic_ns()
        refusals = (
            one.refusal
            for one in self._targets.values()
            if one.refusal is not None and now_ns - one.seen_at_ns <= _STILL_THERE_NS
        )
        return CollectorState(
            STACKS, True, 0.0, self._failed, self._failure or next(refusals, None)
        )

    def close(self) -> None:
        """End the thread, after the sample that is being taken."""
        self._closing.set()
        self._requests.put(None)
        self._thread.join(_STOP_PATIENCE_S)

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def _answered(self) -> Iterable[tuple[tuple[str, ...], StackSample]]:
        with suppress(queue.Empty):
            while True:
                sample = self._answers.get_nowait()
                request = self._pending.pop(0)  # answers come in the order of requests
                if sample is None:
                    continue
                self._taken += 1
                self._failed_in_a_row = self._failed_in_a_row + 1 if sample.error else 0
                if request.pid in self._targets:
                    target = self._targets[request.pid]
                    target.failures = target.failures + 1 if sample.error else 0
                if sample.error is not None:
                    self._failed += 1
                is_lasting = self._failed_in_a_row >= _REPORTED_FAILURES
                self._failure = sample.error if is_lasting else None
                yield request.uuids, sample._replace(owner_uid=request.uid)

    def can_sample(self, now_ns: int) -> bool:
        """Whether a sample would be taken if the GPU of some process were idle now."""
        return self._has_budget(now_ns, len(self._pending) + 1) and any(
            one.refusal is None
            and one.failures < _REPORTED_FAILURES
            and now_ns - one.seen_at_ns <= _STILL_THERE_NS
            and (one.sampled_at_ns is None or now_ns - one.sampled_at_ns >= _LEAST_INTERVAL_NS)
            for one in self._targets.values()
        )

    def request_due(self, frame: Frame, tagged_pids: Collection[int]) -> None:
        """Request the samples that are due.

        Args:
            frame: With ``present_ratios``.
            tagged_pids: Processes that tag their phases themselves: they are not sampled.
        """
        now_ns = frame.taken_at_ns
        present, processes = dict(frame.present_ratios), _sole_processes(frame)
        due: dict[int, tuple[ProcessSample, tuple[str, ...]]] = {}
        for pid, (process, uuids) in processes.items():
            ratios = [present[uuid] for uuid in uuids if uuid in present]
            if pid in tagged_pids or not ratios:
                continue
            target = self._target_of(process)
            target.seen_at_ns = now_ns
            is_idle = min(ratios) <= DEFAULT_SETTINGS.active_above
            target.update(now_ns, is_idle=is_idle, random=self._random)
            is_waiting = any(request.pid == pid for request in self._pending)
            if not is_waiting and target.is_due(now_ns) and self._is_allowed(process, target):
                due[pid] = process, uuids
        if self._pending and now_ns - self._pending[0].at_ns > _LATE_NS:
            due.clear()
        for pid in self._turns.choose({pid: due[pid][0].uid or 0 for pid in due}):
            if self._has_budget(now_ns, len(self._pending) + 1):
                self._turns.note(pid)
                self._targets[pid].sampled_at_ns = now_ns
                process, uuids = due[pid]
                request = _Request(pid, process.uid, uuids, self._clock.monotonic_ns())
                self._pending.append(request)
                self._requests.put(request)
        gone = [pid for pid, one in self._targets.items() if now_ns - one.seen_at_ns > _FORGET_NS]
        for pid in gone:
            del self._targets[pid]

    def _target_of(self, process: ProcessSample) -> _Target:
        target = self._targets.get(process.pid)
        if target is None or target.uid != process.uid:  # or another process got its number
            target = self._targets[process.pid] = _Target(process.uid)
        return target

    def _is_allowed(self, process: ProcessSample, target: _Target) -> bool:
        now_ns = self._clock.monotonic_ns()
        if target.checked_at_ns is None or now_ns - target.checked_at_ns >= _CHECK_AGAIN_NS:
            target.checked_at_ns, target.refusal = now_ns, self._may_read(process)
        return target.refusal is None

    def _has_budget(self, now_ns: int, count: int) -> bool:
        """Whether so many samples more stay below ``MOST_CPU_RATIO`` and what was saved up."""
        spent_s = self._reader.cpu_seconds
        cost_s = spent_s / self._taken if self._taken else _FIRST_COST_S
        allowed_s = _FIRST_CREDIT_S + (now_ns - self._began_ns) / NS_PER_S * MOST_CPU_RATIO
        # Time without pauses saves up little: cost is counted from when that was full.
        self._spent_before_s = max(self._spent_before_s, allowed_s - spent_s - _SAVED_CPU_S)
        left_s = allowed_s - self._spent_before_s - spent_s
        return left_s >= cost_s * count

    def _work(self) -> None:
        while (request := self._requests.get()) is not None and not self.is_closing:
            is_late = self._clock.monotonic_ns() - request.at_ns > _GIVEN_UP_NS
            self._answers.put(None if is_late else self._read(request.pid))

    def _read(self, pid: int) -> StackSample:
        start_ns = self._clock.monotonic_ns()
        try:
            sample = self._reader.read(pid)
            if sample.is_retryable and not self.is_closing:
                sample = self._reader.read(pid)
        except Exception as trouble:  # noqa: BLE001 - whatever it meets, the thread goes on
            why = f"stacks of process {pid} could not be read: {type(trouble).__name__}"
            return StackSample(start_ns, self._clock.monotonic_ns(), pid, error=why)
        return sample


def _sole_processes(frame: Frame) -> Mapping[int, tuple[ProcessSample, tuple[str, ...]]]:
    """The processes that have a GPU for themselves, with its UUIDs, by pid.

    Where several share a GPU, a stack does not show whose work it waits for.
    """
    found: dict[int, tuple[ProcessSample, tuple[str, ...]]] = {}
    for gpu in frame.gpus:
        if gpu.processes is None or len(gpu.processes) != 1 or gpu.error is not None:
            continue
        (process,) = gpu.processes
        if process.serves_others:
            continue
        uuids = found[process.pid][1] if process.pid in found else ()
        found[process.pid] = process, (*uuids, gpu.device.uuid)
    return found


def stacks_of(
    uids: Collection[int] | None,
    refusal_of: Callable[[int], str | None],
    opts_out: Callable[[int], bool | None],
) -> MayRead:
    """The rule of ``gpumon serve --stacks``.

    Args:
        uids: Users whose processes may be read; ``None``: those of every user.
        refusal_of: Why the kernel does not permit it.
        opts_out: Whether a process forbids it in its environment; ``None``: unknown.
    """

    def may_read(process: ProcessSample) -> str | None:
        if process.uid is None:
            return (
                f"stacks of process {process.pid} are not read: its user is unknown, as in a "
                "container that has pids of its own"
            )
        if uids is not None and process.uid not in uids:
            return (
                f"stacks of process {process.pid} are not read: its user is not among --stacks-of"
            )
        if opts_out(process.pid) is not False:
            return (
                f"stacks of process {process.pid} are not read: its environment forbids it, or "
                "cannot be read"
            )
        return refusal_of(process.pid)

    return may_read
