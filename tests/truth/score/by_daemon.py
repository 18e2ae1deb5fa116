"""What ``gpumon serve`` makes of a workload, and from when on."""

from __future__ import annotations

import numpy as np

from gpumon.core.report.report import GpuReport
from gpumon.core.state import GpuState, MonitorState
from tests.truth.daemon_states import ZERO_NS, DriverWindows, daemon_states
from tests.truth.score.finding import Finding, finding_of
from tests.truth.workloads.truth import Workload

_SHORTEST_WINDOW_MS, _LONGEST_WINDOW_MS = 1000 / 6, 1000.0


def found_by_daemon(workload: Workload, rng: np.random.Generator, *, tagged: bool) -> list[Finding]:
    """What is found of each GPU of a workload.

    Args:
        workload: Its truth.
        rng: Draws the driver's window and where it begins.
        tagged: Whether its training runs have a ``PhaseTagger``.
    """
    window_ms = float(rng.uniform(_SHORTEST_WINDOW_MS, _LONGEST_WINDOW_MS))
    windows = [
        DriverWindows(gpu, workload.duration_ms, window_ms, window_ms - rng.uniform(0, window_ms))
        for gpu in workload.gpus
    ]
    spoke_ms: list[float | None] = [None] * len(workload.gpus)
    state: MonitorState | None = None
    for at_ms, state in daemon_states(workload, windows, tagged=tagged):
        for place, gpu in enumerate(state.gpus):
            if spoke_ms[place] is None and gpu.totals.suspected_ns + gpu.totals.starved_ns:
                spoke_ms[place] = float(at_ms)
    assert state is not None
    return [
        finding_of(_as_report(gpu), ZERO_NS, spoke)
        for gpu, spoke in zip(state.gpus, spoke_ms, strict=True)
    ]


def _as_report(gpu: GpuState) -> GpuReport:
    return GpuReport(
        index=gpu.device.index, uuid=None, name=None, totals=gpu.totals, verdict=gpu.verdict
    )
