"""A small discrete-event simulation: programs are generators, resources make them wait.

A program yields the milliseconds that it sleeps, or a deque in which it waits to be woken.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Generator
from itertools import count
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.truth.workloads.spans import Spans, clipped, difference, intersection, spans_between
from tests.truth.workloads.truth import GpuTruth, Workload

Sleeper = Callable[[], object]
Program = Generator["float | deque[Sleeper]", None, None]
Making = Generator["float | deque[Sleeper]", None, int]
"""Makes batches and returns their number."""
MINUTE_MS: Final = 60_000.0
_KERNELS_MS: Final = 32.0
"""A step that does not fill its GPU alternates between busy and idle about this often."""


class Machine:
    """The clock, chance, the GPUs, and the CPU cores and disk that all programs share.

    Attributes:
        now_ms: Since the start.
        sessions_ms: Start and end of each job; the last ends after the machine.
    """

    def __init__(self, kind: str, seed: int, hours: float) -> None:
        self.rng = random.Random(f"{kind}/{seed}")
        self.kind, self.seed, self.duration_ms = kind, seed, round(hours * 60 * MINUTE_MS)
        self.now_ms = 0.0
        self.gpus: list[Gpu] = []
        self._agenda: list[tuple[float, int, Sleeper]] = []
        self._entries = 0
        self.sessions_ms: list[tuple[float, float]] = []
        days = random.Random(f"{kind}/{seed}/sessions")
        begin_ms = days.uniform(0, 1.5) * MINUTE_MS
        while begin_ms < self.duration_ms:
            end_ms = begin_ms + days.lognormvariate(math.log(150), 0.8) * MINUTE_MS
            self.sessions_ms.append((begin_ms, end_ms))
            begin_ms = end_ms + days.lognormvariate(math.log(15), 0.9) * MINUTE_MS
        self.memory_mib = round(self.log(2_000, 75_000))
        self.cpu = Shared(self, float(self.rng.choice((8, 12, 16, 24, 32))), most=1.0)
        self.disk = Shared(self, self.log(0.15, 2.5))

    def log(self, low: float, high: float) -> float:
        """A log-uniform number."""
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))

    def spread(self, mean: float, sigma: float) -> float:
        """A log-normal number with this mean; with ``sigma`` 0 the mean itself."""
        return mean * self.rng.lognormvariate(-sigma * sigma / 2, sigma)

    def start(self, program: Program) -> None:
        """Start a program now."""
        self.at(self.now_ms, program.__next__)

    def at(self, at_ms: float, sleeper: Sleeper) -> None:
        """Wake a program at that time."""
        self._entries += 1
        heapq.heappush(self._agenda, (at_ms, self._entries, sleeper))

    def wake(self, waiting: deque[Sleeper]) -> None:
        """Wake the one that has waited longest, if any."""
        if waiting:
            self.at(self.now_ms, waiting.popleft())

    def run(self) -> Workload:
        """Run to the end; return what happened."""
        while self._agenda and self._agenda[0][0] < self.duration_ms:
            self.now_ms, _, sleeper = heapq.heappop(self._agenda)
            try:
                wait = sleeper()
            except StopIteration:
                continue
            if isinstance(wait, deque):
                wait.append(sleeper)
            elif wait is not None:
                self.at(self.now_ms + float(wait), sleeper)  # type: ignore[arg-type]
        gpus = tuple(gpu.truth(self.duration_ms, self.memory_mib) for gpu in self.gpus)
        return Workload(self.kind, self.seed, self.duration_ms, gpus)


class Work(NamedTuple):
    """Work on a GPU, and the part of it in which the GPU is busy."""

    begin_ms: float
    end_ms: float
    fill: float


class Gpu:
    """Does work in sequence; ``machine.gpus`` lists the visible ones."""

    def __init__(self, machine: Machine, *, seen: bool = True) -> None:
        self.free_ms = 0.0
        self.works: list[Work] = []
        self.requested_ms: list[tuple[float, float]] = []
        self.processes: list[Process] = []
        if seen:
            machine.gpus.append(self)

    def truth(self, duration_ms: int, memory_mib: int) -> GpuTruth:
        works = np.asarray(self.works, dtype=np.float64).reshape(-1, 3)
        length_ms, fill = works[:, 1] - works[:, 0], works[:, 2]
        count = np.where(fill < 1, np.maximum(1, np.rint(length_ms / _KERNELS_MS)), 1).astype(int)
        which = np.repeat(np.arange(count.size), count)
        turn = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count)
        part_ms = (length_ms / count)[which]
        begin_ms = works[which, 0] + turn * part_ms
        busy = _whole(np.column_stack((begin_ms, begin_ms + fill[which] * part_ms)), duration_ms)
        worked_ms = [p.work_ms for p in self.processes if p.work_ms is not None]
        jobs = _whole(np.asarray(sorted(worked_ms)).reshape(-1, 2), duration_ms)
        last = np.searchsorted(busy[:, 0], jobs[:, 1], side="left") - 1
        jobs[:, 1] = busy[last, 1]  # the last kernels end before their step does
        requested = _whole(np.asarray(self.requested_ms).reshape(-1, 2), duration_ms)
        idle = difference(requested, _whole(works[:, :2], duration_ms))
        held = [(p.began_ms, p.ended_ms or duration_ms) for p in self.processes]
        return GpuTruth(
            busy=busy,
            starved=intersection(idle, jobs),
            jobs=jobs,
            held=_whole(np.asarray(held).reshape(-1, 2), duration_ms),
            memory_mib=memory_mib,
        )


def _whole(edges_ms: NDArray[np.float64], duration_ms: int) -> Spans:
    edges = np.rint(edges_ms).astype(np.int64)
    return clipped(spans_between(edges[:, 0], edges[:, 1]), 0, duration_ms)


class Process:
    """A program that holds GPU memory; ``work_ms``: start of its first and end of its last work."""

    def __init__(self, machine: Machine, gpu: Gpu) -> None:
        self._machine, self.gpu = machine, gpu
        self.began_ms, self.ended_ms = machine.now_ms, 0.0
        self.work_ms: tuple[float, float] | None = None
        gpu.processes.append(self)

    def compute(self, ms: float, fill: float = 1.0, lead_ms: float = 0.0) -> Program:
        """Work on the GPU; the program continues ``lead_ms`` before the GPU is done."""
        now_ms = self._machine.now_ms
        begin_ms = max(now_ms, self.gpu.free_ms)
        end_ms = self.gpu.free_ms = begin_ms + ms
        self.gpu.works.append(Work(begin_ms, end_ms, fill))
        self.work_ms = (self.work_ms or (begin_ms,))[0], end_ms
        if end_ms - lead_ms > now_ms:
            yield end_ms - lead_ms - now_ms

    def finish(self) -> Program:
        """Wait until the GPU is done."""
        yield max(0.0, self.gpu.free_ms - self._machine.now_ms)

    def ask(self, batch: Program) -> Program:
        """Wait for a batch."""
        requested_ms = self._machine.now_ms
        yield from batch
        self.gpu.requested_ms.append((requested_ms, self._machine.now_ms))


class Shared:
    """A rate shared equally by its users, at most ``most`` each: cores, a disk, a network."""

    def __init__(self, machine: Machine, rate: float, most: float = math.inf) -> None:
        self._machine, self.rate, self._most = machine, rate, most
        self._each = self._reach = self._at_ms = 0.0
        self._users: list[tuple[float, int, deque[Sleeper]]] = []
        self._turn = 0

    def use(self, amount: float) -> Program:
        """Wait until ``amount`` was received."""
        self._advance()
        waiting: deque[Sleeper] = deque()
        self._turn += 1
        heapq.heappush(self._users, (self._reach + amount, self._turn, waiting))
        self._schedule()
        yield waiting

    def _advance(self) -> None:
        self._reach += (self._machine.now_ms - self._at_ms) * self._each
        self._at_ms = self._machine.now_ms

    def _schedule(self) -> None:
        if self._users:
            self._each = min(self._most, self.rate / len(self._users))
            turn, left = self._turn, max(0.0, self._users[0][0] - self._reach)
            self._machine.at(self._at_ms + left / self._each, lambda: self._serve(turn))

    def _serve(self, turn: int) -> None:
        if turn != self._turn:
            return  # the users have changed since
        self._advance()
        self._turn += 1
        self._machine.wake(heapq.heappop(self._users)[2])
        self._schedule()


class Barrier:
    """Releases its programs when ``count`` have arrived."""

    def __init__(self, machine: Machine, count: int) -> None:
        self._machine, self._count = machine, count
        self._waiting: deque[Sleeper] = deque()

    def wait(self) -> Program:
        """Wait for the last one."""
        if len(self._waiting) + 1 < self._count:
            yield self._waiting
        else:
            while self._waiting:
                self._machine.wake(self._waiting)


class Queue:
    """A bounded queue: ``put`` waits while it is full, ``get`` while it is empty."""

    def __init__(self, machine: Machine, capacity: int) -> None:
        self._machine, self._capacity, self.count = machine, capacity, 0
        self._putting: deque[Sleeper] = deque()
        self._getting: deque[Sleeper] = deque()

    def put(self) -> Program:
        while self.count >= self._capacity:
            yield self._putting
        self.count += 1
        self._machine.wake(self._getting)

    def get(self) -> Program:
        while not self.count:
            yield self._getting
        self.count -= 1
        self._machine.wake(self._putting)


class Loader:
    """Workers with a bounded queue each, read in turn, like PyTorch's DataLoader."""

    def __init__(
        self,
        machine: Machine,
        workers: int,
        make: Callable[[], Making],
        ahead: int = 1,
        spawn_ms: float = 0.0,
    ) -> None:
        self._make, self._spawn_ms = make, spawn_ms
        self.is_closed = False
        self._queues = [Queue(machine, ahead) for _ in range(workers)]
        self._turn = 0
        for queue in self._queues:
            machine.start(self._work(queue))

    def _work(self, queue: Queue) -> Program:
        yield self._spawn_ms
        while not self.is_closed:
            for _ in range((yield from self._make())):
                yield from queue.put()

    def get(self) -> Program:
        """Wait for the next batch, in order."""
        queue = self._queues[self._turn % len(self._queues)]
        self._turn += 1
        yield from queue.get()


Act = Callable[[Process], Program]
"""What a training run does after every n steps."""


def sessions(m: Machine, gpu: Gpu, run: Callable[[Process, float], Program]) -> None:
    """A process per session, which loads for a while and then runs until its end."""
    load_ms, compile_ms = m.log(3_000, 60_000), m.rng.choice((0.0, 0.0, m.log(2_000, 60_000)))

    def all_sessions() -> Program:
        for begin_ms, end_ms in m.sessions_ms:
            yield max(0.0, begin_ms - m.now_ms)
            process = Process(m, gpu)
            yield load_ms
            if compile_ms:
                yield from process.compute(m.log(20, 500))
                yield compile_ms
            yield from run(process, end_ms)
            yield from process.finish()
            process.ended_ms = m.now_ms

    m.start(all_sessions())


class Steps:
    """The duration of a training run's steps, on the GPU and on the host after it."""

    def __init__(self, m: Machine, ms: float, sigma: float | None = None) -> None:
        self._m, self.ms = m, ms
        self.sigma = m.log(0.002, 0.04) if sigma is None else sigma
        self.host_ms = ms * m.rng.choice((0.0, m.log(0.002, 0.08)))
        self.fill = m.rng.choice((1.0, m.rng.uniform(0.6, 1.0)))
        self.lead_ms = m.rng.choice((0.0, 0.9 * ms))

    def one(self, process: Process) -> Program:
        """Do one step."""
        step_ms = self._m.spread(self.ms, self.sigma)
        yield from process.compute(step_ms, self.fill, self.lead_ms)
        if self.host_ms:
            yield self.host_ms


def train(
    m: Machine,
    steps: Steps,
    load: Callable[[], Loader] | None = None,
    acts: tuple[tuple[int, Act], ...] = (),
    epoch: int | None = None,
) -> Callable[[Process, float], Program]:
    """A loop: wait for a batch, do a step, and act after every n steps.

    It ends after the first act, so that ranks that meet in it end together. The loader is
    restarted every ``epoch`` steps; ``None``: never.
    """
    ends_every = acts[0][0] if acts else 1

    def run(process: Process, end_ms: float) -> Program:
        loader = load() if load else None
        for number in count(1):
            if loader:
                yield from process.ask(loader.get())
            yield from steps.one(process)
            for every, act in acts:
                if number % every == 0:
                    yield from process.finish()
                    yield from act(process)
            if load and loader and epoch and number % epoch == 0:
                loader.is_closed = True
                loader = load()
            if number % ends_every == 0 and m.now_ms > end_ms:
                return

    return run


def decoding(m: Machine, core_ms: float, sigma: float, mb: float = 0.0) -> Callable[[], Making]:
    """Makes one batch: reads it from the disk, then decodes it on one core."""

    def make() -> Making:
        if mb:
            yield from m.disk.use(mb)
        yield from m.cpu.use(m.spread(core_ms, sigma))
        return 1

    return make


def metrics_call(m: Machine) -> Program:
    """A call to a metric server, which sometimes needs a retry."""
    yield m.spread(120, 0.8) if m.rng.random() > 0.05 else m.log(2_000, 15_000)


def neighbours(m: Machine, amount_mb: float, share: float, users: int = 1) -> None:
    """Others use the disk for minutes at a time, so large a share of the time."""
    use_ms = m.log(0.3, 5) * 60_000

    def use(until_ms: float) -> Program:
        while m.now_ms < until_ms:
            yield from m.disk.use(m.spread(amount_mb, 0.5))

    def come_and_go() -> Program:
        while True:
            yield m.rng.expovariate(share / (use_ms * (1 - share)))
            until_ms = m.now_ms + m.rng.expovariate(1 / use_ms)
            for _ in range(users):
                m.start(use(until_ms))
            yield until_ms - m.now_ms

    m.start(come_and_go())
