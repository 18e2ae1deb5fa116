"""What ``gpumon analyze`` makes of the rows that a logger wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from tests.builders.logs import blocks_of
from tests.truth.score.finding import NS_PER_MS, STARVED, Finding, finding_of, first_true
from tests.truth.workloads import GpuTruth, Workload, memory_used_mib
from tests.truth.workloads.seeing import SeenLog

_MIB = 1 << 20
_SETTINGS = DetectorSettings()


def found_in_logs(
    workload: Workload, seen: Sequence[SeenLog], *, memory: bool = True, when: bool = True
) -> list[Finding]:
    """What is found of each GPU of one workload.

    Args:
        workload: The truth, for the memory that its processes hold.
        seen: What the logger saw of each.
        memory: Whether the log has a column for the memory in use.
        when: Whether to find out from which row on the detector speaks, too.
    """
    rows = [
        samples_of(at, log, gpu if memory else None)
        for at, (gpu, log) in enumerate(zip(workload.gpus, seen, strict=True))
    ]
    report = reported(rows)
    begin_ns = int(min(log.stamps_ns[0] for log in seen))
    # The report's clock runs from the first row, less its period; the workload's from 0.
    origin_ns = report.origin_ns + report.period_ns - begin_ns
    found = []
    for samples, gpu in zip(rows, sorted(report.gpus, key=lambda one: one.index), strict=True):
        spoke_ms = None
        if when and gpu.verdict.name in STARVED:
            spoke_ms = _spoke_at_ms(samples)
        found.append(finding_of(gpu, origin_ns, spoke_ms))
    return found


def _spoke_at_ms(rows: list[LogSample]) -> float | None:
    """Stamp of the first row after which something is suspected; settled time never moves."""

    def suspects(count: int) -> bool:
        report = reported([[row._replace(gpu=0) for row in rows[:count]]])
        return report.gpus[0].totals.suspected_ns > 0

    at = first_true(suspects, len(rows))
    return None if at is None else rows[at - 1].stamp_ns / NS_PER_MS


def reported(samples: Sequence[list[LogSample]]) -> Report:
    analysis = LogAnalysis(_SETTINGS)
    for rows in samples:
        analysis.ingest(blocks_of(rows))
    gpus = tuple(LoggedGpu(index=index) for index in range(len(samples)))
    facts = LogFacts(clock=NO_CLOCK, gpus=gpus, skipped_lines=0, period_ns=None, notes=())
    return analysis.report("workload", facts)


def samples_of(at: int, log: SeenLog, holder: GpuTruth | None) -> list[LogSample]:
    ratios = (np.asarray(log.percents, dtype=np.float64) / 100).tolist()
    stamps_ns = log.stamps_ns.tolist()
    if holder is None:
        return [LogSample(at, *row) for row in zip(stamps_ns, ratios, strict=True)]
    used = (memory_used_mib(holder, log.stamps_ns // NS_PER_MS) * _MIB).tolist()
    return [LogSample(at, *row) for row in zip(stamps_ns, ratios, used, strict=True)]
