"""Reads slow values on a separate thread, one round at a time.

A call that hangs cannot be ended. So it blocks only this thread, no second thread is started for
what waits behind it, and utilisation is still sampled.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from gpumon.sources.nvml.fields.reader import SourceContext
from gpumon.sources.nvml.gpu import NvmlGpu
from gpumon.sources.nvml.mig import MigInstance

Work = Callable[[], None]


class SlowThread:
    """Runs rounds of work on its own thread; all methods are for one other thread."""

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
        return self._done.is_set()

    def run(self, work: Sequence[Work], patience_s: float) -> None:
        """Start a round, if none is running, and wait up to ``patience_s`` for its end.

        Raises:
            Exception: An earlier round or this one ended with it.
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
        self._done.wait(patience_s)

    def afterwards(self, work: Work) -> None:
        """Do this when no round is running: now, or at the end of the present one."""
        with self._ending:
            if not self.is_free:
                self._afterwards.append(work)
                return
        work()

    def close(self) -> None:
        """Let the thread end, without waiting for it. Safe to call twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._rounds.put(None)

    def _work(self) -> None:
        while (work := self._rounds.get()) is not None:
            self._try(work)
            while (last := self._last()) is not None:
                self._try([last])

    def _try(self, work: Sequence[Work]) -> None:
        try:
            for action in work:
                action()
        except Exception as error:  # noqa: BLE001 - raised by ``run``
            self._error = error

    def _last(self) -> Work | None:
        """What is left to do in this round; ``None``: it has ended."""
        with self._ending:
            if self._afterwards:
                return self._afterwards.pop(0)
            self._done.set()
            return None


EARLY_RATIO, LATE_RATIO = 0.3, 0.5
"""Parts of a period by which slow values may be read early or late: so they are read in ticks that
drain a ring, and the other ticks read nothing."""

SLOW_PATIENCE_S: Final = 0.05
"""How long a tick waits for slow values, which usually take some milliseconds."""


class SlowReader:
    """Reads the slow values of the devices that are due, all of a tick in one round.

    Attributes:
        unread: Devices that came due while a round was running.
    """

    def __init__(self, thread: SlowThread, context: SourceContext, patience_s: float) -> None:
        self._thread, self._context, self._patience_s = thread, context, patience_s
        self._may_measure = "pcie" in context.options
        self.unread: list[NvmlGpu | MigInstance] = []
        self._being_read: list[NvmlGpu | MigInstance] = []

    def read_due(
        self,
        devices: Sequence[NvmlGpu | MigInstance],
        now_ns: int,
        *,
        early_ns: int,
        lists_processes: bool,
    ) -> list[NvmlGpu | MigInstance]:
        """Read the devices that are due, now or after the round that is running; return them.

        Args:
            devices: All of them.
            now_ns: CLOCK_MONOTONIC.
            early_ns: How much earlier than due a device is read.
            lists_processes: List the processes of the others, too, unless a round is running.
        """
        due = []
        for place, device in enumerate(devices):
            if now_ns < device.refresh_at_ns - early_ns:
                continue
            due.append(device)
            share = (place + 1) / len(devices) if device.refresh_at_ns == 0 else 1.0
            device.refresh_at_ns = now_ns + int(self._context.slow_period_ns * share)
            if device.failure:
                device.release()
        is_free = self._thread.is_free
        for device in self._being_read:
            device.note_hanging(now_ns)
        waiting = [*self.unread, *due]
        self.unread = [device for device in devices if device in waiting and not device.failure]
        if is_free:
            self._being_read, self.unread = self.unread, []
            work = [device.schedule.read_due for device in self._being_read]
            if lists_processes:
                work += [
                    device.schedule.read_processes
                    for device in devices
                    if not device.failure and device not in self._being_read
                ]
            if self._may_measure:
                work.append(self._measuring(devices, now_ns))
            if work:
                self._thread.run(work, self._patience_s)
        return due

    def quiet_until_ns(self, devices: Sequence[NvmlGpu | MigInstance]) -> int:
        """Until when none of these has to be read; 0: each tick reads, or a round is running."""
        if self._may_measure or self.unread or not self._thread.is_free:
            return 0
        due_ns = min(device.refresh_at_ns for device in devices)
        return due_ns + int(LATE_RATIO * self._context.slow_period_ns)

    def _measuring(
        self, devices: Sequence[NvmlGpu | MigInstance], now_ns: int
    ) -> Callable[[], None]:
        """Measure PCIe where the driver does not count: 40 ms inside it, so one GPU a tick."""
        readable = [gpu.fields for gpu in devices if isinstance(gpu, NvmlGpu) and not gpu.failure]
        round_ns = len(readable) * self._context.period_ns

        def measure() -> None:
            waiting = [
                fields
                for fields in readable
                if fields.wants_measuring and now_ns >= fields.measure_at_ns
            ]
            if waiting:
                first = min(waiting, key=lambda fields: fields.measure_at_ns)
                first.measure_at_ns = now_ns + self._context.slow_period_ns
                first.measure_links(round_ns)

        return measure
