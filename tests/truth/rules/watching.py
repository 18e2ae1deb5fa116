"""Observe a workload: by the daemon's detector, with or without tags, or in a log."""

from __future__ import annotations

from typing import Final

from gpumon.core.report.report import Report
from gpumon.core.state import MonitorState
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.state_report import report_of
from tests.builders.logs import analysed, only_gpu
from tests.truth.daemon_states import daemon_states, driver_windows
from tests.truth.workloads import Workload, as_csv
from tests.truth.workloads.draws import Draws

_WINDOW_MS: Final = 200.0


def in_log(workload: Workload, period_s: float = 1.0) -> Report:
    """The report of ``gpumon analyze`` on the log that nvidia-smi would have written."""
    return analysed(as_csv(workload, period_s, Draws.of("logger", 0).rng))


def watched(workload: Workload, *, tagged: bool, for_ms: int | None = None) -> Report:
    """The daemon's report at the end, or after ``for_ms``."""
    return report_of(watched_state(workload, tagged=tagged, for_ms=for_ms))


def watched_state(workload: Workload, *, tagged: bool, for_ms: int | None = None) -> MonitorState:
    """The daemon's last state: a tick a second, samples of 0.2 s."""
    windows = [driver_windows(gpu, workload.duration_ms, _WINDOW_MS, 0.0) for gpu in workload.gpus]
    for at_ms, state in daemon_states(workload, windows, tagged=tagged):  # noqa: B007
        if for_ms is not None and at_ms >= for_ms:
            break
    return state


def verdict_in_log(workload: Workload, period_s: float = 1.0) -> VerdictName:
    return only_gpu(in_log(workload, period_s)).verdict.name


def verdict_with_tags(workload: Workload, for_ms: int | None = None) -> VerdictName:
    return only_gpu(watched(workload, tagged=True, for_ms=for_ms)).verdict.name
