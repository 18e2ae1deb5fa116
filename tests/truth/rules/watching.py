"""How a world is watched: by the daemon's own detector, with tags or without, or in a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from gpumon.core.device import Device
from gpumon.core.report import Report
from gpumon.core.ring_events import RingEvent, RingKind, RingReading, RingsReading, RunFacts
from gpumon.core.sample import BusySample, Frame, GpuSample
from gpumon.core.state import MonitorState
from gpumon.core.tick import Tick
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.live_report import report_of
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from tests.builders_logs import analysed, only_gpu
from tests.builders_time import s
from tests.truth.worlds import GpuTruth, World, as_csv
from tests.truth.worlds.draws import Draws
from tests.truth.worlds.spans import covered_ms

_BEGAN_S: Final = 1_000
_WINDOW_MS: Final = 200
_WINDOWS: Final = 1_000 // _WINDOW_MS


def in_log(world: World, period_s: float = 1.0) -> Report:
    """What ``gpumon analyze`` says of the log that nvidia-smi would have written."""
    return analysed(as_csv(world, period_s, Draws.of("logger", 0).rng))


def watched(world: World, *, tagged: bool) -> Report:
    """What the daemon says of it in the end."""
    return report_of(watched_state(world, tagged=tagged))


def watched_state(world: World, *, tagged: bool) -> MonitorState:
    """The daemon's last state, after a tick a second over samples of 0.2 s."""
    facts = MonitorFacts(
        source="world", source_kind="nvml", simulated=False, period_ns=s(1), boot_id="boot",
        started_wall_time_s=0.0,
    )  # fmt: skip
    monitor, state = Monitor(facts), None
    boards = [[*_samples(gpu, world.duration_ms)] for gpu in world.gpus]
    for second in range(1, world.duration_ms // 1_000 + 1):
        now_ns = s(_BEGAN_S + second)
        since = (second - 1) * _WINDOWS
        gpus = tuple(
            GpuSample(device=_device(at), busy=tuple(board[since : since + _WINDOWS]))
            for at, board in enumerate(boards)
        )
        tick = Tick(now_ns, 0, (Frame(taken_at_ns=now_ns, gpus=gpus),), 0, None, 0.0)
        rings = [_ring(world, second)] if tagged else []
        state = monitor.advance(tick, RingsReading(rings=tuple(rings)), wall_time_s=float(second))
    assert state is not None
    return state


def verdict_in_log(world: World, period_s: float = 1.0) -> VerdictName:
    return only_gpu(in_log(world, period_s)).verdict.name


def verdict_with_tags(world: World) -> VerdictName:
    return only_gpu(watched(world, tagged=True)).verdict.name


def _samples(gpu: GpuTruth, duration_ms: int) -> Iterator[BusySample]:
    edges_ms = np.arange(0, duration_ms + 1, _WINDOW_MS)
    busy_ms = np.diff(covered_ms(gpu.busy, edges_ms.astype(np.float64)))
    for begin_ms, ratio in zip(edges_ms.tolist(), (busy_ms / _WINDOW_MS).tolist(), strict=False):
        yield BusySample(_at_ns(begin_ms), _at_ns(begin_ms + _WINDOW_MS), min(1.0, round(ratio, 2)))


def _ring(world: World, second: int) -> RingReading:
    """What the training on all of its GPUs has said in that second."""
    events = [
        RingEvent(RingKind.ENTER, _at_ns(mark.at_ms), mark.phase, mark.mode)
        for mark in world.gpus[0].phases
        if (second - 1) * 1_000 <= mark.at_ms < second * 1_000
    ]
    ends_ms = int(world.gpus[0].held[-1, 1])
    is_alive = second * 1_000 < ends_ms
    facts = RunFacts(
        run="small", job="small", pid=42, boot_id="boot", started_ns=s(_BEGAN_S),
        gpus=tuple(str(at) for at in range(len(world.gpus))),
    )  # fmt: skip
    return RingReading(
        key="ring", facts=facts, alive=is_alive, host_pid=42, owner_uid=0,
        read_at_ns=s(_BEGAN_S + second), ended_ns=None if is_alive else _at_ns(ends_ms),
        events=events, lost_events=0, phase_ns={}, steps=0, samples=0, epoch=None,
    )  # fmt: skip


def _device(at: int) -> Device:
    return Device(uuid=f"GPU-{at}", index=at)


def _at_ns(at_ms: int) -> int:
    return s(_BEGAN_S) + at_ms * 1_000_000
