"""Sixteen simulated GPUs: one starved by a cold disk, one lost, two held idle, eight well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.core.sample import BusySample, Device, GpuDetails, GpuSample, ProcessSample
from gpumon.core.state import MonitorState
from gpumon.outlets.http.server import HttpServer
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.outlets.text.monitor_view import ViewBuilder
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.report_builder import Reports
from tests.builders.monitor import STEP, WAIT, Story
from tests.builders.report import MB, evidence, task

STARVED_GPU, LOST, HELD = 5, 11, (2, 9)
WELL: Final = (0, 1, 3, 4, 6, 7, 8, 10)
GIB: Final = 1 << 30
ALICE, BOB, CAROL, DAVE = (1001, "alice"), (1002, "bob"), (1003, "carol"), (1004, "dave")
STARVED_RUN, WELL_RUN = "resnet50", "llm-pretrain"
LONG_S: Final = 1_320
"""How long it has been watched: the held GPUs worked in the first five minutes."""
_HELD_FROM_S: Final = 300
_SLOW_FROM_S: Final = 900
"""Since then the files of the starved run are no longer in memory."""
_LOST_FROM_S: Final = 1_140
_IS_LOST: Final = UNREADABLE[15]


class SixteenGpus(Story):
    """A machine with sixteen GPUs and four users, second by second."""

    def __init__(self, began_wall_time_s: float | None = None) -> None:
        super().__init__(simulated=True)
        if began_wall_time_s is None:
            began_wall_time_s = time.time() - LONG_S
        self.began_wall_time_s = began_wall_time_s
        self.monitor = Monitor(
            MonitorFacts(
                source="sixteen simulated GPUs", source_kind="simulated", simulated=True,
                period_ns=NS_PER_S, boot_id="boot", started_wall_time_s=self.began_wall_time_s,
            )
        )  # fmt: skip
        self.processes = {index: _processes(index) for index in range(16)}
        self.xid_errors = dict.fromkeys(range(16), ())
        self.ring(STARVED_RUN, gpus=(str(STARVED_GPU),), pid=4242, uid=ALICE[0])
        self.ring(WELL_RUN, gpus=tuple(map(str, WELL)), pid=5150, uid=CAROL[0])
        self.host_samples = {
            STARVED_RUN: evidence(
                task(0.02, state="D", sleeps_in="io_schedule"), read_bytes_per_second=180 * MB,
                disk_busy_ratio=0.97, usable_cores=16.0,
            )
        }  # fmt: skip

    def play(self, seconds: int, follow: Callable[[MonitorState], object]) -> MonitorState:
        """Let so many seconds pass, and pass each state on."""
        for _ in range(seconds):
            at, lost = self.second, self.second >= _LOST_FROM_S
            if lost:
                self.errors[LOST] = f"{_IS_LOST.meaning}: {_IS_LOST.advice}"
                self.xid_errors[LOST] = ((79, 1),)
            levels = [self._level(index, at) for index in range(16)]
            slow = at >= _SLOW_FROM_S
            phases = {
                STARVED_RUN: [(0.0, WAIT), (0.55 if slow else 0.02, STEP)],
                WELL_RUN: [(0.0, WAIT), (0.01, STEP)],
            }
            state = self.pass_second_with(
                phases, *levels, steps={STARVED_RUN: 1 if slow else 2, WELL_RUN: 4}
            )
            follow(state)
        return state

    @staticmethod
    def _level(index: int, at: int) -> float:
        if index == STARVED_GPU:
            return 0.45 if at >= _SLOW_FROM_S else 0.98
        if index in HELD:
            return 0.95 if at < _HELD_FROM_S else 0.0
        return 0.97 + 0.02 * ((at + index) % 2) if index in (*WELL, LOST) else 0.0

    def _gpu(self, index: int, busy: tuple[BusySample, ...]) -> GpuSample:
        sample = super()._gpu(index, busy)
        device = Device(
            uuid=f"GPU-sixteen-{index:02d}", index=index, name="NVIDIA H100 80GB HBM3",
            memory_capacity_bytes=80 * GIB,
        )  # fmt: skip
        if sample.error is not None:
            return sample._replace(device=device)
        level = busy[-1].busy_ratio if busy else 0.0
        return sample._replace(
            device=device,
            memory_used_bytes=sum(one.memory_used_bytes or 0 for one in sample.processes or ())
            + GIB // 2,
            power_watts=75.0 + 560.0 * level,
            temperature_celsius=34.0 + 28.0 * level,
            sm_clock_hertz=1.755e9,
            details=GpuDetails(read_at_ns=self.now_ns, power_limit_watts=700.0),
        )


def _processes(index: int) -> tuple[ProcessSample, ...]:
    if index == STARVED_GPU:
        return (_process(4242, 41, ALICE),)
    if index in HELD:
        return (_process(7000 + index, 62, BOB),)
    if index == LOST:
        return (_process(8111, 30, DAVE),)
    if index in WELL:
        return (_process(5150 + index, 71, CAROL),)
    return ()


def _process(pid: int, memory_gib: int, owner: tuple[int, str]) -> ProcessSample:
    uid, user = owner
    return ProcessSample(pid, memory_gib * GIB, name="python", user=user, uid=uid)


class _StoryClock:
    """The clock of the newest state, which goes on between two states."""

    def __init__(self) -> None:
        self.set_to(0)

    def set_to(self, now_ns: int) -> None:
        self._ahead_ns = now_ns - time.monotonic_ns()

    def monotonic_ns(self) -> int:
        return self._ahead_ns + time.monotonic_ns()

    def wall_time_s(self) -> float:
        return time.time()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        raise AssertionError("this clock does not sleep")


@contextmanager
def served_live(
    seconds: int = LONG_S, *, began_wall_time_s: float | None = None, every_s: float | None = None
) -> Iterator[str]:
    """A server with this machine after so many seconds; yields ``HOST:PORT``.

    Args:
        seconds: What has passed before.
        began_wall_time_s: As in ``SixteenGpus``.
        every_s: How often another second passes; ``None``: time stands still.
    """
    machine, reports, views = SixteenGpus(began_wall_time_s), Reports(), ViewBuilder()
    clock = _StoryClock()
    server = HttpServer(
        "127.0.0.1:0",
        exporter=MetricsExporter(clock=clock, version="0.1.0"),
        clock=clock,
        report=lambda _: None,
        view=lambda state, cells: views.view(state, reports.report_on(state), cells),
    )

    def follow(state: MonitorState) -> None:
        reports.follow(state)
        clock.set_to(state.taken_at_ns)
        server.publish(state)

    machine.play(seconds, follow)
    is_over = threading.Event()

    def go_on() -> None:
        while every_s is not None and not is_over.wait(every_s):
            machine.play(1, follow)

    thread = threading.Thread(target=go_on)
    try:
        server.start()
        thread.start()
        yield server.address
    finally:
        is_over.set()
        thread.join()
        server.close()
