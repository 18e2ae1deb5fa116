"""Kinds without training: no loader, no tags, nothing starved."""

from __future__ import annotations

import numpy as np

from tests.truth.workloads.draws import Draws, Millis
from tests.truth.workloads.spans import Spans, clipped, no_spans, spans_between, spans_of
from tests.truth.workloads.truth import GpuTruth


def inference_server(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A server answers random requests."""
    work_ms = draws.log_uniform(5, 400)
    load, factor = draws.log_uniform(0.03, 0.95), draws.log_uniform(1, 4)
    arrivals: list[Millis] = []
    begin_ms = 0.0
    while begin_ms < duration_ms:
        end_ms = begin_ms + draws.log_uniform(60_000, 1_200_000)
        mean_ms = work_ms / (load * factor ** draws.uniform(-1.0, 1.0))
        count = int(1.2 * (end_ms - begin_ms) / mean_ms) + 20
        at_ms = int(begin_ms) + np.cumsum(draws.waits(mean_ms, count))
        arrivals.append(at_ms[at_ms < end_ms])
        begin_ms = end_ms
    served = _served(np.concatenate(arrivals), draws, work_ms)
    return (_in_one_process(clipped(served, 0, duration_ms), duration_ms, draws),)


def notebook(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A user runs a cell, reads, thinks, and runs the next; sometimes none for long."""
    at_ms, pieces = draws.uniform(0, 120_000), [no_spans()]
    thinking_ms = draws.log_uniform(10_000, 120_000)
    while at_ms < duration_ms:
        cell_ms, busy = draws.log_uniform(200, 60_000), draws.uniform(0.2, 1.0)
        piece_ms = min(cell_ms, draws.log_uniform(50, 2_000))
        count = max(1, round(cell_ms * busy / piece_ms))
        work_ms = draws.skewed(piece_ms, 0.4, count)
        host_ms = draws.waits(max(0.1, piece_ms * (1 / busy - 1)), count)
        ends_ms = int(at_ms) + np.cumsum(work_ms + host_ms)
        pieces.append(spans_between(ends_ms - work_ms, ends_ms))
        at_ms = float(ends_ms[-1]) + min(600_000, max(5_000, draws.skewed(thinking_ms, 1.2, 1)[0]))
    return (_in_one_process(clipped(np.concatenate(pieces), 0, duration_ms), duration_ms, draws),)


def requests_by_hand(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A user asks a language model, reads the answer, and asks again."""
    answer_ms, reading_ms = draws.log_uniform(2_000, 60_000), draws.log_uniform(5_000, 300_000)
    count = int(3 * duration_ms / (answer_ms + reading_ms)) + 20
    works = draws.skewed(answer_ms, draws.uniform(0.3, 1.0), count)
    reads = draws.skewed(reading_ms, draws.uniform(0.3, 1.5), count)
    ends = np.cumsum(works + reads)
    busy = spans_between(ends - works, ends)
    return (_in_one_process(clipped(busy, 0, duration_ms), duration_ms, draws),)


def desktop(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """A desktop: windows, films, scrolling."""
    at_ms, pieces = 0.0, [no_spans()]
    while at_ms < duration_ms:
        length_ms, level = draws.log_uniform(1_000, 300_000), draws.uniform(0.03, 0.9)
        frame_ms = draws.log_uniform(8, 50)
        count = max(1, int(length_ms / frame_ms))
        if not draws.chance(0.33):
            begins_ms = int(at_ms) + np.rint(np.arange(count) * frame_ms).astype(np.int64)
            work_ms = np.minimum(draws.around(frame_ms * level, 0.2, count), int(frame_ms) - 1)
            pieces.append(spans_between(begins_ms, begins_ms + np.maximum(1, work_ms)))
        at_ms += length_ms
    return (_in_one_process(clipped(np.concatenate(pieces), 0, duration_ms), duration_ms, draws),)


def unused(draws: Draws, duration_ms: int) -> tuple[GpuTruth, ...]:
    """Nothing computes; a monitor or a desktop uses the device for milliseconds."""
    every_ms = draws.log_uniform(1_000, 60_000)
    at_ms = np.cumsum(draws.waits(every_ms, int(1.5 * duration_ms / every_ms) + 20))
    busy = spans_between(at_ms, at_ms + draws.around(draws.uniform(1, 8), 0.3, at_ms.size))
    return (GpuTruth(clipped(busy, 0, duration_ms), no_spans(), no_spans()),)


def _served(arrivals_ms: Millis, draws: Draws, work_ms: float) -> Spans:
    """One request after the other."""
    works = draws.skewed(work_ms, 0.5, arrivals_ms.size)
    done = np.cumsum(works)
    ends = done + np.maximum.accumulate(arrivals_ms - (done - works))
    return spans_between(ends - works, ends)


def _in_one_process(busy: Spans, duration_ms: int, draws: Draws) -> GpuTruth:
    """A job from its first to its last work, in a process that lives all the time."""
    busy = spans_between(busy[:, 0], busy[:, 1])
    jobs = spans_of([(int(busy[0, 0]), int(busy[-1, 1]))]) if busy.size else no_spans()
    held = spans_of([(0, duration_ms)])
    return GpuTruth(busy, no_spans(), jobs, held, memory_mib=int(draws.log_uniform(1_000, 40_000)))
