"""A second generator of synthetic machines, independent of ``tests.truth.workloads``.

Each kind models a renewal process from its physics, and draws its constants from the ranges of real
machines. A detector that was fitted on one generator is tested on the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from zlib import crc32

import numpy as np

from tests.truth.renewal import late, other
from tests.truth.renewal.device import MS_PER_SECOND, Draw, Work
from tests.truth.workloads.spans import (
    Spans,
    clipped,
    difference,
    intersection,
    no_spans,
    spans_between,
    union,
)
from tests.truth.workloads.truth import GpuTruth, Workload

_LATE: Final = (
    late.heavy_tailed_fetches, late.shuffle_buffer_refills, late.tar_shards, late.row_groups,
    late.throttled_storage, late.noisy_neighbour, late.internet_stream, late.no_workers,
    late.variable_lengths, late.cold_epochs, late.evicted_page_cache,
    late.ranks_with_a_loader_each,
)  # fmt: skip
_OTHERS: Final = (
    other.checkpoints, other.evaluations_on_the_cpu, other.logs_and_plots,
    other.garbage_collections, other.slow_network_rounds, other.federated_rounds,
    other.inference_server, other.notebook, other.recompiling, other.two_tenants, other.rollouts,
    other.short_jobs, other.rendered_frames, other.host_work, other.optimizer_offload,
    other.steady_training, other.well_fed_training, other.offline_inference,
)  # fmt: skip
KINDS: Final[Mapping[str, Callable[[Draw, float], list[Work]]]] = {
    make.__name__: make for make in (*_LATE, *_OTHERS)
}
"""From the draws and the seconds of a job to the work of each GPU, by name."""
LATE: Final = frozenset(make.__name__ for make in _LATE)
"""The kinds whose input is late."""

_SECONDS_PER_HOUR: Final = 3_600.0
_SEVERAL_JOBS_FROM_HOURS: Final = 0.75


def machine(kind: str, seed: int, hours: float) -> Workload:
    """One machine of this kind, usually with one job, else with two or three.

    The first job may have begun before, the last may continue after the end.

    Raises:
        KeyError: There is no such kind.
    """
    make = KINDS[kind]
    draw = Draw(np.random.default_rng([seed, crc32(kind.encode())]))
    memory_mib = round(draw.log_uniform(1_200, 75_000))
    duration_ms = round(hours * _SECONDS_PER_HOUR * MS_PER_SECOND)
    jobs: list[list[GpuTruth]] = []
    for begin_ms, end_ms in _job_times_ms(draw, duration_ms):
        works = make(draw, (end_ms - begin_ms) / MS_PER_SECOND)
        startup_ms = round(draw.log_uniform(2, 60) * MS_PER_SECOND)
        truths = [_truth(work, begin_ms, end_ms, startup_ms, memory_mib) for work in works]
        jobs.append([_watched(truth, duration_ms) for truth in truths])
    gpus = tuple(_joined(parts) for parts in zip(*jobs, strict=True))
    return Workload(kind, seed, duration_ms, gpus)


def _job_times_ms(draw: Draw, duration_ms: int) -> list[tuple[int, int]]:
    """Begin and end of each job; the first may begin below 0, the last end after the duration."""
    beyond_ms = min(0.2 * duration_ms, 600_000)
    begin_ms = draw.uniform(-beyond_ms, 0) if draw.chance(0.5) else draw.uniform(0, beyond_ms)
    end_ms = duration_ms + (beyond_ms if draw.chance(0.6) else -draw.uniform(0, beyond_ms))
    is_short = duration_ms < _SEVERAL_JOBS_FROM_HOURS * _SECONDS_PER_HOUR * MS_PER_SECOND
    count = 1 if is_short else int(draw.rng.choice([1, 2, 3], p=[0.75, 0.17, 0.08]))
    shares = np.cumsum(draw.rng.uniform(0.5, 1.5, count))
    ends = begin_ms + (end_ms - begin_ms) * shares / shares[-1]
    breaks = [draw.log_uniform(0.01, 0.2) * (end_ms - begin_ms) / count for _ in range(count - 1)]
    begins = [begin_ms, *(ends[:-1] + breaks)]
    return [(round(begin), round(end)) for begin, end in zip(begins, ends.tolist(), strict=True)]


def _truth(work: Work, begin_ms: int, end_ms: int, startup_ms: int, memory_mib: int) -> GpuTruth:
    """A job between these times."""
    busy, starved, spins, away = (clipped(spans + begin_ms, begin_ms, end_ms) for spans in work)
    if not busy.size:
        return GpuTruth(no_spans(), no_spans(), no_spans(), memory_mib=memory_mib)
    jobs = difference(busy[[0, -1], [0, 1]].reshape(1, 2), away)
    before_ms = np.diff(np.concatenate(([begin_ms - 2 * startup_ms], jobs.ravel())))[::2]
    starts_ms = jobs[:, 0] - np.minimum(startup_ms, 0.8 * before_ms).astype(np.int64)
    held = spans_between(starts_ms, jobs[:, 1])
    return GpuTruth(
        busy, intersection(starved, jobs), jobs, held, memory_mib=memory_mib, spins=spins
    )


def _watched(truth: GpuTruth, duration_ms: int) -> GpuTruth:
    """The observed part."""
    busy, starved, jobs, held, spins = (
        clipped(spans, 0, duration_ms)
        for spans in (truth.busy, truth.starved, truth.jobs, truth.held, truth.spins)
    )
    return GpuTruth(busy, starved, jobs, held, memory_mib=truth.memory_mib, spins=spins)


def _joined(truths: Sequence[GpuTruth]) -> GpuTruth:
    """The jobs of one GPU as one truth."""

    def all_of(name: str) -> Spans:
        joined = no_spans()
        for truth in truths:
            joined = union(joined, getattr(truth, name))
        return joined

    return GpuTruth(
        all_of("busy"),
        all_of("starved"),
        all_of("jobs"),
        all_of("held"),
        memory_mib=truths[0].memory_mib,
        spins=all_of("spins"),
    )
