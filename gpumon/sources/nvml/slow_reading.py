"""Reads what may take long beside the sampling: on one thread of its own, one round at a time.

A call that hangs cannot be ended. So it has this thread to itself, no second
one is started for what waits behind it, and the utilisation is sampled on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from gpumon.sources.nvml.fields.reader import Surroundings
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance

Work = Callable[[], None]


class SlowThread:
    """Runs rounds of work, and tells when one is done. All but its own thread is one thread's."""

    def __init__(self) -> None:
        self._rounds: queue.SimpleQueue[Sequence[Work] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending = threading.Lock()
        self._afterwards: list[Work] = []
        self._done = threading.Event()
        self._done.set()
        self._error: Exception | None = None

    @property
    def is_free(self) -> bool:
        """Whether no round is under way."""
        return self._done.is_set()

    def run(self, work: Sequence[Work], patience_s: float) -> None:
        """Begin a round, where none is under way, and wait for its end, but not long.

        What is not done by then is done all the same, one after the other.

        Raises:
            Exception: What an earlier round or this one ended with.
        """
        if self.is_free:
            self._done.clear()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="gpumon-slow", daemon=True)
                self._thread.start()
            self._rounds.put(work)
            self.wait(patience_s)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def wait(self, patience_s: float) -> None:
        """Wait for the end of the round that is under way, but not long."""
        self._done.wait(patience_s)

    def afterwards(self, work: Work) -> None:
        """Do this where no round is under way: now, or at the end of the present one."""
        with self._ending:
            if not self.is_free:
                self._afterwards.append(work)
                return
        work()

    def close(self) -> None:
        """Let the thread end, which nobody waits for. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._rounds.put(None)  # it is enough

    def _work(self) -> None:
        while (work := self._rounds.get()) is not None:
            self._try(work)
            while (last := self._last()) is not None:
                self._try([last])

    def _try(self, work: Sequence[Work]) -> None:
        try:
            for one in work:
                one()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody can tell it
            self._error = error

    def _last(self) -> Work | None:
        """What is left to be done in this round; ``None``: it has ended."""
        with self._ending:
            if self._afterwards:
                return self._afterwards.pop(0)
            self._done.set()
            return None


SLOW_PATIENCE_S: Final = 0.05
"""So long a tick waits for slow values, which usually take some milliseconds."""


class SlowReader:
    """Reads the slow values of the devices whose turn it is, all of a tick in one round.

    Attributes:
        unread: Devices whose turn came while a round was under way.
    """

    def __init__(self, thread: SlowThread, around: Surroundings, patience_s: float) -> None:
        self._thread, self._around, self._patience_s = thread, around, patience_s
        self._may_measure = "pcie" in around.options
        self.unread: list[NvmlGpu | MigInstance] = []
        self._being_read: list[NvmlGpu | MigInstance] = []

    def read_due(
        self, devices: Sequence[NvmlGpu | MigInstance], now_ns: int
    ) -> list[NvmlGpu | MigInstance]:
        """Read those whose turn it is, or as soon as what is under way is over.

        Returns:
            Those whose turn it is.
        """
        due = []
        for place, one in enumerate(devices):
            if now_ns < one.refresh_at_ns:
                continue
            due.append(one)
            share = (place + 1) / len(devices) if one.refresh_at_ns == 0 else 1.0
            one.refresh_at_ns = now_ns + int(self._around.slow_period_ns * share)
            if one.failure:
                one.release()
        is_free = self._thread.is_free
        for one in self._being_read:
            one.note_hanging(now_ns)
        waiting = [*self.unread, *due]
        self.unread = [one for one in devices if one in waiting and not one.failure]
        if is_free:
            self._being_read, self.unread = self.unread, []
            work = [one.schedule.read_due for one in self._being_read]
            if self._may_measure:
                work.append(self._measuring(devices, now_ns))
            if work:
                self._thread.run(work, self._patience_s)
        return due

    def _measuring(
        self, devices: Sequence[NvmlGpu | MigInstance], now_ns: int
    ) -> Callable[[], None]:
        """PCIe, where only measuring tells it: 40 ms inside the driver, so of one GPU in a tick."""
        readable = [one.fields for one in devices if isinstance(one, NvmlGpu) and not one.failure]
        round_ns = len(readable) * self._around.period_ns

        def measure() -> None:
            waiting = [
                one for one in readable if one.wants_measuring and now_ns >= one.measure_at_ns
            ]
            if waiting:
                first = min(waiting, key=lambda one: one.measure_at_ns)
                first.measure_at_ns = now_ns + self._around.slow_period_ns
                first.measure_links(round_ns)

        return measure
