"""What each detector finds on a GPU of a workload: gpumon, and two rules of other tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.verdict import Verdict, VerdictName
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from tests.builders.logs import blocks_of
from tests.truth.daemon_states import daemon_states, driver_windows
from tests.truth.workloads import GpuTruth, Workload, memory_used_mib
from tests.truth.workloads.seeing import LONGEST_WINDOW_MS, SHORTEST_WINDOW_MS, SeenLog

NS_PER_MS: Final = 1_000_000
STARVED: Final = frozenset({VerdictName.STARVED, VerdictName.STARVATION_SUSPECTED})
"""The verdicts that send a user to the input pipeline."""
Percents = NDArray[np.uint8]
_MIB: Final = 1 << 20
_SETTINGS: Final = DetectorSettings()


class Finding(NamedTuple):
    """The result for one GPU; ``None`` where the detector has no such figure.

    Attributes:
        is_starved: Whether it says that the GPU waits for its input.
        lost_s: Idle time in use, without the wait for the first batch: a workload is in use from
            its first burst on.
        starved_s: The part attributed to the input.
        detected_at_ms: When it was first reported, from the begin of the workload.
    """

    is_starved: bool
    lost_s: float | None = None
    starved_s: float | None = None
    detected_at_ms: float | None = None


def _finding(totals: GpuTotals, verdict: Verdict, detected_at_ms: float | None) -> Finding:
    is_starved = verdict.name in STARVED
    return Finding(
        is_starved,
        lost_s=totals.diagnosed.lost_ns / 1e9,
        starved_s=(totals.starved_ns + totals.suspected_ns) / 1e9,
        detected_at_ms=detected_at_ms if is_starved else None,
    )


def found_in_logs(
    workload: Workload, seen: Sequence[SeenLog], *, memory: bool = True, when: bool = True
) -> list[Finding]:
    """What ``gpumon analyze`` finds on each GPU.

    Args:
        workload: For the memory that its processes hold.
        seen: The rows of each GPU.
        memory: Whether the log has a column for the memory in use.
        when: Whether to search the first row after which it is reported.
    """
    rows = [
        samples_of(at, log, gpu if memory else None)
        for at, (gpu, log) in enumerate(zip(workload.gpus, seen, strict=True))
    ]
    gpus = sorted(report_on(rows).gpus, key=lambda gpu: gpu.index)
    return [
        _finding(
            gpu.totals,
            gpu.verdict,
            _first_suspected_ms(samples) if when and gpu.verdict.name in STARVED else None,
        )
        for samples, gpu in zip(rows, gpus, strict=True)
    ]


def report_on(samples: Sequence[list[LogSample]]) -> Report:
    """The report on a log with these rows, a list for each GPU."""
    analysis = LogAnalysis(_SETTINGS)
    for rows in samples:
        analysis.ingest(blocks_of(rows))
    gpus = tuple(LoggedGpu(index=index) for index in range(len(samples)))
    facts = LogFacts(clock=NO_CLOCK, gpus=gpus, skipped_lines=0, period_ns=None, notes=())
    return analysis.report("workload", facts)


def samples_of(at: int, log: SeenLog, holder: GpuTruth | None) -> list[LogSample]:
    """The rows of GPU ``at``, with the memory in use if ``holder`` is given."""
    ratios = (np.asarray(log.percents, dtype=np.float64) / 100).tolist()
    stamps_ns = log.stamps_ns.tolist()
    if holder is None:
        return [LogSample(at, *row) for row in zip(stamps_ns, ratios, strict=True)]
    used = (memory_used_mib(holder, log.stamps_ns // NS_PER_MS) * _MIB).tolist()
    return [LogSample(at, *row) for row in zip(stamps_ns, ratios, used, strict=True)]


def _first_suspected_ms(rows: list[LogSample]) -> float | None:
    """Time of the first row after which something is suspected; settled time never changes."""
    samples = [row._replace(gpu=0) for row in rows]

    def is_suspected(count: int) -> bool:
        return report_on([samples[:count]]).gpus[0].totals.suspected_ns > 0

    at = first_true(is_suspected, len(rows))
    return None if at is None else rows[at - 1].stamp_ns / NS_PER_MS


def first_true(holds: Callable[[int], bool], count: int) -> int | None:
    """Smallest n up to ``count`` for which ``holds(n)``, which once true stays true."""
    high = 8
    while high < count and not holds(high):
        high *= 2
    high = min(high, count)
    if not holds(high):
        return None
    low = high // 2 if high > 8 else 0
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def found_by_daemon(workload: Workload, rng: np.random.Generator, *, tagged: bool) -> list[Finding]:
    """What ``gpumon serve`` finds on each GPU.

    Args:
        workload: What happens.
        rng: Draws the driver's window and where it begins.
        tagged: Whether its training runs have a ``PhaseTagger``.
    """
    window_ms = float(rng.uniform(SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS))
    windows = [
        driver_windows(gpu, workload.duration_ms, window_ms, window_ms - rng.uniform(0, window_ms))
        for gpu in workload.gpus
    ]
    first_ms: dict[int, float] = {}
    for at_ms, state in daemon_states(workload, windows, tagged=tagged):
        for index, gpu in enumerate(state.gpus):
            if gpu.totals.suspected_ns + gpu.totals.starved_ns:
                first_ms.setdefault(index, float(at_ms))
    return [
        _finding(gpu.totals, gpu.verdict, first_ms.get(index))
        for index, gpu in enumerate(state.gpus)
    ]


def mean_below_70(percents: Percents) -> Finding:
    """The rule of thumb: mean utilisation below 70 %."""
    return Finding(bool(percents.mean() < 70))


def sagemaker(percents: Percents) -> Finding:
    """SageMaker Debugger: p95 below 70 % is low use; p95 above and p5 below 10 % fluctuation.

    Over windows of 500 readings; the first ends with reading 1,000. It reports nothing on shorter
    logs; here all their readings count.
    """
    if len(percents) >= 1_000:
        percents = percents[500:]
    windows = [percents[at : at + 500] for at in range(0, max(1, len(percents) - 499), 500)]
    quantiles = [np.percentile(window, [95, 5]) for window in windows]
    return Finding(any(high < 70 or (high > 70 and low < 10) for high, low in quantiles))


def sagemaker_in_runs(log: SeenLog, gpu: GpuTruth) -> Finding:
    """The same within runs that a user can tag: it watches nothing else."""
    at_ms = log.stamps_ns // NS_PER_MS
    runs = [
        log.percents[(begin_ms <= at_ms) & (at_ms < end_ms)]
        for begin_ms, end_ms in gpu.held.tolist()
        if ((begin_ms <= gpu.marks.at_ms) & (gpu.marks.at_ms < end_ms)).any()
    ]
    return Finding(any(sagemaker(run).is_starved for run in runs if run.size))
