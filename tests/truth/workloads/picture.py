"""A workload in words and characters, for someone who looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.truth.workloads.kind import MS_PER_HOUR
from tests.truth.workloads.seeing import SeenLog
from tests.truth.workloads.spans import Spans, covered_ms, lengths_ms
from tests.truth.workloads.truth import GpuTruth, Workload

_LEVELS: Final = " .:-=+*%@"
"""Of a lane: from idle to busy."""
_QUANTILES: Final = (0.05, 0.5, 0.95, 1.0)


def described(workload: Workload) -> str:
    """One sentence: kind, seed, duration and whether any GPU is starved."""
    verdict = "starved" if workload.is_starved else "not starved"
    hours = workload.duration_ms / MS_PER_HOUR
    return f"{workload.kind} {workload.seed}: {hours:g} h on {len(workload.gpus)} GPU(s), {verdict}"


def numbers_of(index: int, gpu: GpuTruth) -> Iterator[str]:
    """What is true of a GPU, a line at a time."""
    in_use_s = gpu.in_use_ms / 1_000
    yield (
        f"GPU {index}: {gpu.jobs.shape[0]} job(s), in use {in_use_s:.1f} s, "
        f"lost {gpu.lost_ms / 1_000:.1f} s ({_percent(gpu.lost_ms, gpu)}), "
        f"starved {gpu.starved_ms / 1_000:.1f} s ({_percent(gpu.starved_ms, gpu)})"
    )
    yield f"  lost:    {_pauses(gpu.lost)}"
    yield f"  starved: {_pauses(gpu.starved)}"


def lane(gpu: GpuTruth, begin_ms: int, end_ms: int, width: int) -> Iterator[str]:
    """How busy it was, ``width`` characters wide, and below it how starved, in tenths."""
    edges = np.linspace(begin_ms, end_ms, width + 1)
    yield f"  busy    |{_bar(_shares(gpu.busy, edges))}|"
    yield f"  starved |{_tenths(_shares(gpu.starved, edges))}|"


def seen_lane(log: SeenLog, begin_ms: int, end_ms: int, width: int) -> str:
    """The mean of a log's rows, ``width`` characters wide; ``?`` where there is no row."""
    at_ms = log.stamps_ns / 1e6
    column = np.floor((at_ms - begin_ms) / (end_ms - begin_ms) * width).astype(np.int64)
    is_in = (column >= 0) & (column < width)
    rows = np.bincount(column[is_in], minlength=width)
    sums = np.bincount(column[is_in], weights=log.percents[is_in], minlength=width)
    bar = _bar(sums / np.maximum(rows, 1) / 100.0)
    shown = "".join(char if row else "?" for char, row in zip(bar, rows.tolist(), strict=True))
    return f"  seen    |{shown}|"


def _shares(spans: Spans, edges_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.diff(covered_ms(spans, edges_ms)) / np.diff(edges_ms)


def _bar(shares: NDArray[np.float64]) -> str:
    levels = np.rint(np.clip(shares, 0.0, 1.0) * (len(_LEVELS) - 1)).astype(np.int64)
    return "".join(_LEVELS[level] for level in levels.tolist())


def _tenths(shares: NDArray[np.float64]) -> str:
    """A blank below 5 %, then 1 to 9."""
    tenths = np.minimum(9, np.rint(shares * 10)).astype(np.int64)
    return "".join(str(tenth) if tenth else " " for tenth in tenths.tolist())


def _percent(part_ms: int, gpu: GpuTruth) -> str:
    return f"{100 * part_ms / max(1, gpu.in_use_ms):.1f} %"


def _pauses(spans: Spans) -> str:
    if not spans.shape[0]:
        return "no pause"
    values = np.quantile(lengths_ms(spans), _QUANTILES) / 1_000
    names = (f"p{100 * q:.0f}" if q < 1 else "longest" for q in _QUANTILES)
    listed = ", ".join(f"{name} {s:.3g} s" for name, s in zip(names, values, strict=True))
    return f"{spans.shape[0]} pauses, {listed}"
