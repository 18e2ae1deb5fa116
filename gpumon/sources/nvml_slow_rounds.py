"""Whose slow values are read when, beside the sampling, and what is told of one that hangs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from gpumon.sources.nvml_beside import Beside
from gpumon.sources.nvml_gpu import NvmlGpu
from gpumon.sources.nvml_mig import MigInstance
from gpumon.sources.nvml_turns import Surroundings

SLOW_PATIENCE_S: Final = 0.05
"""So long a tick waits for slow values, which take some milliseconds as a rule."""


class SlowRounds:
    """Reads the slow values of the devices whose turn it is, all of a tick in one round.

    Attributes:
        unread: Devices whose turn came while a round was under way.
    """

    def __init__(self, beside: Beside, around: Surroundings, patience_s: float) -> None:
        """Nothing is read yet.

        Args:
            beside: Where it is read.
            around: What the devices have in common.
            patience_s: How long a tick waits for a round to end, in seconds.
        """
        self._beside, self._around, self._patience_s = beside, around, patience_s
        self._may_measure = "pcie" in around.options.fields
        self.unread: list[NvmlGpu | MigInstance] = []
        self._being_read: list[NvmlGpu | MigInstance] = []

    def read_due(
        self, devices: Sequence[NvmlGpu | MigInstance], now_ns: int
    ) -> list[NvmlGpu | MigInstance]:
        """Read those whose turn it is, or as soon as what is under way is over.

        Args:
            devices: All of them, in the order of the frame.
            now_ns: CLOCK_MONOTONIC.

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
        is_free = self._beside.is_free
        for one in self._being_read:
            one.note_hanging(now_ns)
        waiting = [*self.unread, *due]
        self.unread = [one for one in devices if one in waiting and not one.failure]
        if is_free:
            self._being_read, self.unread = self.unread, []
            work = [one.reading for one in self._being_read]
            if self._may_measure:
                work.append(self._measuring(devices, now_ns))
            if work:
                self._beside.run(work, self._patience_s)
        return due

    def _measuring(
        self, devices: Sequence[NvmlGpu | MigInstance], now_ns: int
    ) -> Callable[[], None]:
        """PCIe, where only measuring tells it: 40 ms inside the driver, so of one GPU in a tick."""
        readable = [one.slow for one in devices if isinstance(one, NvmlGpu) and not one.failure]
        round_ns = len(readable) * self._around.period_ns

        def measure() -> None:
            waiting = [
                slow for slow in readable if slow.wants_measuring and now_ns >= slow.measure_at_ns
            ]
            if waiting:
                slow = min(waiting, key=lambda slow: slow.measure_at_ns)
                slow.measure_at_ns = now_ns + self._around.slow_period_ns
                slow.measure_links(round_ns)

        return measure
