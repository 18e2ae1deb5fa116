"""Parts of recordings of real boards, read as logs, with the share of them that was starved.

The runs reported when they waited for a batch. A driver's window is starved for as long as it
contains that wait, at most as long as the GPU was idle. Parts of one recording overlap. Readings
are the newest of the driver's windows, and nvidia-smi's own log, if any.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingKind
from gpumon.sources.recording import RecordingFile
from tests.truth.workloads.spans import Spans, covered_ms, spans_of

FOLDER: Final = Path(__file__).parent.parent / "recordings"
RECORDINGS: Final = ("nvidia-h200-runs", "nvidia-h100-80gb-hbm3-keras")
_BETWEEN: Final = {"nvidia-h200-runs": ("requests", "shard_fetch", "rounds")}
"""A run without tags, for it waited for no batches, and the two between which it ran."""
READ: Final = ((0.2, 0.5), (1.0, 0.1), (1.0, 0.4), (1.0, 0.8), (5.0, 0.1), (5.0, 0.5), (5.0, 0.9))
"""Seconds between two readings, and the first one, in periods after the begin."""
_MARGIN_MS, _LATER_MS = 3_000, 25_000
_FEWEST_READINGS: Final = 20
_NS_PER_MS: Final = 1_000_000
Columns = NDArray[np.float64]
"""Times in ms and percents, shape (n, 2)."""


class Case(NamedTuple):
    """A part as one logger read it: ``stamps_ns`` and ``percents`` have shape (n,)."""

    name: str
    period_s: float
    stamps_ns: NDArray[np.int64]
    percents: NDArray[np.uint8]
    starved_ratio: float


class Recorded(NamedTuple):
    """Windows of shape (n, 2), the busy ratio of each, waits, runs, and nvidia-smi's rows."""

    windows_ms: NDArray[np.float64]
    busy_ratio: NDArray[np.float64]
    waits: Spans
    runs_ms: dict[str, tuple[int, int]]
    rows: Columns


def recorded(name: str) -> Recorded:
    """Read a recording; times are in ms since its first window."""
    windows: dict[int, tuple[int, int, float]] = {}
    runs: dict[str, list[tuple[int, bool]]] = {}
    ends_ns: dict[str, int] = {}
    with RecordingFile(FOLDER / f"{name}.gpumon") as recording:
        for reading in recording.readings():
            for sample in reading.tick.frames[0].gpus[0].busy if reading.tick.frames else ():
                windows[sample.start_ns] = sample.start_ns, sample.end_ns, sample.busy_ratio
            for ring in reading.rings.rings:
                ends_ns[ring.facts.run] = ring.ended_ns or reading.tick.at_ns
                runs.setdefault(ring.facts.run, []).extend(
                    (event.at_ns, event.phase is TrainingPhase.INPUT_WAIT)
                    for event in ring.events
                    if event.kind is RingKind.ENTER
                )
    origin_ns = min(windows)

    def ms(at_ns: int) -> int:
        return round((at_ns - origin_ns) / _NS_PER_MS)

    waits, runs_ms = [], {}
    for run, entered in runs.items():
        entered.append((ends_ns[run], False))
        waits += [(ms(one[0]), ms(other[0])) for one, other in pairwise(entered) if one[1]]
        runs_ms[run] = (ms(entered[0][0]), ms(ends_ns[run]))
    if name in _BETWEEN:
        run, before, after = _BETWEEN[name]
        runs_ms[run] = (runs_ms[before][1] + _MARGIN_MS, runs_ms[after][0] - _MARGIN_MS)
    rows = np.asarray(sorted(windows.values()))
    edges_ms = (rows[:, :2] - origin_ns) / _NS_PER_MS
    origin_s = reading.wall_time_s - (reading.tick.at_ns - origin_ns) / 1e9
    return Recorded(edges_ms, rows[:, 2], spans_of(waits), runs_ms, _written(name, origin_s))


def _written(name: str, origin_s: float) -> Columns:
    rows, path = [], FOLDER / f"{name}.csv"
    for line in path.read_text(encoding="utf-8").splitlines()[1:] if path.exists() else ():
        stamp, _, _, _, percent, *_ = line.split(", ")
        at = datetime.strptime(f"{stamp} +0000", "%Y/%m/%d %H:%M:%S.%f %z")
        rows.append((1_000 * (at.timestamp() - origin_s), float(percent.removesuffix(" %"))))
    return np.asarray(rows).reshape(-1, 2)


def starved_ratio(made: Recorded, begin_ms: int, end_ms: int) -> float:
    """Starved share of the time in use, from each run's first to its last work."""
    begins, ends = made.windows_ms.T
    waited = covered_ms(made.waits, ends) - covered_ms(made.waits, begins)
    starved = np.minimum(waited, (1 - made.busy_ratio) * (ends - begins))
    in_use_ms = starved_ms = 0.0
    for run_begin_ms, run_end_ms in made.runs_ms.values():
        is_in = (begins >= max(begin_ms, run_begin_ms)) & (ends < min(end_ms, run_end_ms))
        works = np.flatnonzero(is_in & (made.busy_ratio > 0))
        if works.size:
            in_use_ms += ends[works[-1]] - begins[works[0]]
            starved_ms += starved[works[0] : works[-1] + 1].sum()
    return float(starved_ms / in_use_ms) if in_use_ms else 0.0


def stretches(made: Recorded) -> Iterator[tuple[str, int, int]]:
    """Each run, and several in turn, also from the middle of one."""
    runs = sorted(made.runs_ms.items(), key=lambda run: run[1])
    for count in (1, 2, 4):
        for (name, (begin_ms, _)), (last, (_, end_ms)) in zip(
            runs, runs[count - 1 :], strict=False
        ):
            yield (
                f"{name}..{last}" * (count > 1) or name,
                begin_ms - _MARGIN_MS,
                end_ms + _MARGIN_MS,
            )
            if count > 1:
                yield f"{name}..{last} later", begin_ms + _LATER_MS, end_ms + _LATER_MS


def readings(made: Recorded, begin_ms: int, end_ms: int) -> Iterator[tuple[str, float, Columns]]:
    """What loggers read: a label, seconds between two readings, times and percents."""
    ends_ms = made.windows_ms[:, 1]
    for period_s, phase in READ:
        period_ms = period_s * 1_000
        ticks_ms = np.arange(begin_ms + phase * period_ms, min(end_ms, ends_ms[-1]), period_ms)
        newest = np.searchsorted(ends_ms, ticks_ms, side="right") - 1
        columns = np.column_stack((ticks_ms, 100 * made.busy_ratio[newest]))
        yield f"{period_s:g}s/{phase:g}", period_s, columns
    at_ms = made.rows[:, 0]
    yield "1s/nvidia-smi", 1.0, made.rows[(at_ms >= begin_ms) & (at_ms < end_ms)]


def cases() -> Iterator[Case]:
    """All parts by all loggers, if they have enough readings."""
    for recording in RECORDINGS:
        made = recorded(recording)
        for stretch, begin_ms, end_ms in stretches(made):
            ratio = starved_ratio(made, begin_ms, end_ms)
            for label, period_s, columns in readings(made, begin_ms, end_ms):
                if len(columns) >= _FEWEST_READINGS:
                    stamps_ns = np.rint((columns[:, 0] - begin_ms) * _NS_PER_MS).astype(np.int64)
                    percents = np.rint(columns[:, 1]).astype(np.uint8)
                    name = f"{recording}/{stretch}/{label}"
                    yield Case(name, period_s, stamps_ns, percents, ratio)
