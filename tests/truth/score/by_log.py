"""What ``gpumon analyze`` makes of the rows that a logger wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpumon.core.report import Report
from gpumon.core.settings import DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample
from gpumon.sources.logs.stamps import NO_CLOCK
from tests.truth.score.finding import NS_PER_MS, STARVED, Finding, finding_of, first_true
from tests.truth.worlds.seeing import SeenLog

_SETTINGS = DetectorSettings()


def found_in_logs(seen: Sequence[SeenLog], *, when: bool = True) -> list[Finding]:
    """What is found of each GPU of one world.

    Args:
        seen: What the logger saw of each.
        when: Whether to find out from which row on the detector speaks, too.
    """
    report = _report([_samples(gpu, log) for gpu, log in enumerate(seen)])
    begin_ns = int(min(log.stamps_ns[0] for log in seen))
    # The report's clock runs from the first row, less its period; the world's from 0.
    origin_ns = report.origin_ns + report.period_ns - begin_ns
    found = []
    for log, gpu in zip(seen, sorted(report.gpus, key=lambda one: one.index), strict=True):
        spoke_ms = None
        if when and gpu.verdict.name in STARVED:
            spoke_ms = _spoke_at_ms(log)
        found.append(finding_of(gpu, origin_ns, spoke_ms))
    return found


def _spoke_at_ms(log: SeenLog) -> float | None:
    """Stamp of the first row after which something is suspected; settled time never moves."""
    rows = list(_samples(0, log))

    def suspects(count: int) -> bool:
        report = _report([iter(rows[:count])])
        return report.gpus[0].totals.suspected_ns > 0

    at = first_true(suspects, len(rows))
    return None if at is None else rows[at - 1].stamp_ns / NS_PER_MS


def _report(samples: Sequence[Iterator[LogSample]]) -> Report:
    analysis = LogAnalysis(_SETTINGS)
    for rows in samples:
        analysis.take(rows)
    gpus = tuple(LoggedGpu(index=index) for index in range(len(samples)))
    facts = LogFacts(clock=NO_CLOCK, gpus=gpus, skipped_lines=0, period_ns=None, notes=())
    return analysis.report("world", facts)


def _samples(gpu: int, log: SeenLog) -> Iterator[LogSample]:
    ratios = np.asarray(log.percents, dtype=np.float64) / 100
    for stamp_ns, ratio in zip(log.stamps_ns.tolist(), ratios.tolist(), strict=True):
        yield LogSample(gpu, stamp_ns, ratio)
