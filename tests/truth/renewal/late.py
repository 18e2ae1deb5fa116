"""Training runs whose batches come late, in ways that show as pauses of half a second or more."""

from __future__ import annotations

import numpy as np

from tests.truth.renewal.device import (
    Draw,
    State,
    Work,
    fed,
    how_many,
    in_turn,
    loader_waits,
    looped,
    step_times,
)

IDLE, BUSY, STARVED, AWAY = State.IDLE, State.BUSY, State.STARVED, State.AWAY


def heavy_tailed_fetches(draw: Draw, seconds: float) -> list[Work]:
    """Fetch times are lognormal, Pareto or Weibull up to a timeout, over 1 to 16 workers."""
    workers = draw.integer(1, 16)
    steps_s = step_times(draw, seconds, draw.log_uniform(max(0.12, 0.6 / workers), 4))
    tails = (
        draw.rng.lognormal(0, draw.uniform(0.5, 1.7), steps_s.size),
        1 + draw.rng.pareto(draw.uniform(1.2, 3), steps_s.size),
        draw.rng.weibull(draw.uniform(0.35, 0.9), steps_s.size),
    )
    tail = tails[draw.rng.integers(3)]
    mean_s = workers * float(steps_s.mean())
    fetches_s = mean_s * draw.log_uniform(0.7, 2.5) * tail / tail.mean()
    timeout_s = mean_s * draw.log_uniform(8, 60) + draw.log_uniform(5, 60)
    return fed(draw, steps_s, np.minimum(fetches_s, timeout_s), workers)


def shuffle_buffer_refills(draw: Draw, seconds: float) -> list[Work]:
    """A shuffle buffer is emptied to a mark, then refilled before training goes on."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.1, 3))
    refill_s = draw.log_uniform(0.7, 90)
    per_refill = max(1, round(refill_s / draw.log_uniform(0.08, 1.5) / float(steps_s.mean())))
    counts = np.full(steps_s.size // per_refill + 2, per_refill)
    refills_s = refill_s * draw.noise(counts.size, draw.log_uniform(0.01, 0.6))
    per_epoch = draw.integer(2, 200)
    counts[per_epoch - 1 :: per_epoch] = draw.integer(1, per_refill)
    refills_s[per_epoch - 1 :: per_epoch] /= 1 - draw.uniform(0, 0.5)  # the rest goes as well
    waits_s = np.zeros(steps_s.size)
    at = np.cumsum(counts)
    waits_s[at[at < waits_s.size]] = refills_s[at < waits_s.size]
    return looped(draw, steps_s, waits_s, STARVED)


def tar_shards(draw: Draw, seconds: float) -> list[Work]:
    """Each worker opens its next shard (tar, TFRecord) after so many batches and waits for it."""
    workers, step_s = draw.integer(1, 8), draw.log_uniform(0.1, 3)
    steps_s = step_times(draw, seconds, step_s)
    open_s = draw.log_uniform(1.5, 60) + workers * step_s
    per_shard = max(2.0, open_s / draw.log_uniform(0.22, 1.5) / (workers * step_s))
    spread = draw.log_uniform(0.003, 0.4)
    fetches_s = workers * step_s * draw.uniform(0.1, 0.8) * draw.noise(steps_s.size, 0.1)
    for worker in range(workers):
        sizes = draw.noise(int(2 * steps_s.size / workers / per_shard) + 4, spread)
        begins = (np.cumsum(sizes * per_shard) - sizes * per_shard).astype(np.int64)
        at = begins * workers + worker
        speeds = draw.noise(sizes.size, 0.15)
        fetches_s[at[at < steps_s.size]] += (open_s * sizes * speeds)[at < steps_s.size]
    return fed(draw, steps_s, fetches_s, workers)


def row_groups(draw: Draw, seconds: float) -> list[Work]:
    """One reader decodes a row group of a Parquet file, then slices equal batches from it."""
    step_s, depth = draw.log_uniform(0.05, 2), draw.integer(1, 9) - 1
    steps_s = step_times(draw, seconds, step_s)
    pause_s = draw.log_uniform(0.7, 25)
    per_group = max(2, round(pause_s / draw.log_uniform(0.1, 1.5) / step_s), 2 * depth)
    decode_s = pause_s + depth * step_s
    fetches_s = draw.uniform(0.001, 0.2) * step_s * draw.noise(steps_s.size, 0.1)
    groups = fetches_s[::per_group]
    groups += decode_s * draw.noise(groups.size, draw.log_uniform(0.005, 0.25))
    return looped(draw, steps_s, loader_waits(fetches_s, steps_s, 1, depth), STARVED)


def throttled_storage(draw: Draw, seconds: float) -> list[Work]:
    """Network storage is fast until its credit is spent, then slow until the period ends."""
    workers = draw.integer(1, 12)
    steps_s = step_times(draw, seconds, draw.log_uniform(max(0.1, 0.6 / workers), 3))
    load = draw.uniform(0.3, 0.95)
    period_s, fast = draw.log_uniform(20, 900), draw.uniform(0.25, 0.9)
    rounds = int(2 * seconds / period_s) + 4
    lengths_s = np.tile([period_s * fast, period_s * (1 - fast)], rounds)
    lengths_s *= draw.noise(2 * rounds, draw.log_uniform(0.01, 0.5))
    slowdown = np.repeat(
        np.tile([1.0, draw.log_uniform(1.4, 12) / load], rounds),
        np.maximum(1, np.rint(lengths_s)).astype(np.int64),
    )
    means_s = load * workers * float(steps_s.mean())
    fetches_s = means_s * draw.noise(steps_s.size, draw.log_uniform(0.01, 0.5))
    return fed(draw, steps_s, fetches_s, workers, slowdown)


def noisy_neighbour(draw: Draw, seconds: float) -> list[Work]:
    """A pool of CPUs preprocesses in time until a neighbour takes its cores for a while."""
    workers = draw.integer(2, 16)
    steps_s = step_times(draw, seconds, draw.log_uniform(max(0.1, 0.6 / workers), 3))
    load = draw.uniform(0.5, 1.05)
    quiet_mean_s, loud_mean_s = draw.log_uniform(20, 600), draw.log_uniform(20, 600)
    rounds = how_many(seconds, quiet_mean_s + loud_mean_s)
    quiet_s = draw.rng.exponential(quiet_mean_s, rounds)
    loud_s = draw.rng.exponential(loud_mean_s, rounds)
    lengths = np.ceil(np.column_stack((quiet_s, loud_s))).astype(np.int64).ravel()
    taken = draw.uniform(1.3, 4) * draw.noise(rounds, 0.3) / load
    factors = np.column_stack((np.ones(rounds), np.maximum(1, taken))).ravel()
    fetches_s = load * workers * float(steps_s.mean()) * draw.noise(steps_s.size, 0.15)
    return fed(draw, steps_s, fetches_s, workers, np.repeat(factors, lengths))


def internet_stream(draw: Draw, seconds: float) -> list[Work]:
    """Samples stream from the internet; speed drifts, connections stall and are retried."""
    connections, step_s = draw.integer(1, 6), draw.log_uniform(0.15, 4)
    steps_s = step_times(draw, seconds, step_s)
    fetches_s = draw.log_uniform(0.4, 1.5) * connections * steps_s.mean()
    speeds = draw.drift(steps_s.size, draw.log_uniform(20, 600) / step_s, draw.uniform(0.1, 0.7))
    fetches_s = fetches_s / speeds * draw.noise(steps_s.size, draw.log_uniform(0.05, 0.6))
    retries = draw.rng.geometric(draw.uniform(0.4, 0.9), steps_s.size)
    backoffs_s = draw.log_uniform(2, 20) * (2.0 ** np.minimum(retries, 6) - 1)
    is_stalled = draw.rng.random(steps_s.size) < step_s / draw.log_uniform(15, 400)
    stalls_s = is_stalled * np.minimum(backoffs_s, 300) * draw.noise(steps_s.size, 0.2)
    return fed(draw, steps_s, fetches_s + stalls_s, connections)


def no_workers(draw: Draw, seconds: float) -> list[Work]:
    """The training run loads each batch itself, then computes; loads are equal or vary."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.4, 10))
    loads_s = draw.log_uniform(0.6, 12) * draw.noise(steps_s.size, draw.log_uniform(0.003, 0.8))
    if draw.chance(0.3):  # every so many batches it opens a file
        loads_s[:: draw.integer(2, 100)] *= draw.uniform(1.5, 6)
    return looped(draw, steps_s, loads_s, STARVED)


def variable_lengths(draw: Draw, seconds: float) -> list[Work]:
    """Audio or documents: a batch decodes for the sum of its lengths, computes for its longest."""
    workers, samples = draw.integer(1, 6), draw.integer(2, 12)
    step_s = draw.log_uniform(max(0.2, 0.6 / workers), 5)
    count = how_many(seconds, step_s)
    bucket = draw.noise(count, draw.uniform(0, 0.6))  # buckets put like lengths together
    lengths = draw.noise(count * samples, draw.uniform(0.3, 1)).reshape(count, samples)
    work = bucket * lengths.sum(axis=1)
    padded = (bucket * lengths.max(axis=1)) ** draw.uniform(1, 1.6)
    fetches_s = draw.log_uniform(0.8, 2.5) * workers * step_s * work / work.mean()
    return fed(draw, step_s * padded / padded.mean(), fetches_s, workers)


def cold_epochs(draw: Draw, seconds: float) -> list[Work]:
    """Each epoch starts its workers again; the first reads a cold cache, some never fits."""
    workers, step_s = draw.integer(1, 12), draw.log_uniform(0.08, 2)
    start_s = draw.log_uniform(1.5, 60)
    per_epoch = max(4 * workers, round(start_s / draw.log_uniform(0.07, 1) / step_s))
    depth, uncached = 2 * workers, draw.uniform(0, 0.15)
    warm, cold = draw.uniform(0.2, 0.9), draw.uniform(1.5, 6)
    steps, waits = [], []
    for epoch in range(int(seconds / (per_epoch * step_s)) + 1):
        steps_s = step_s * draw.noise(per_epoch, 0.01)
        is_miss = draw.rng.random(per_epoch) < (uncached if epoch else 1.0)
        fetches_s = workers * step_s * np.where(is_miss, cold, warm) * draw.noise(per_epoch, 0.2)
        fetches_s[:workers] += start_s * draw.noise(workers, 0.05)
        steps.append(steps_s)
        waits.append(loader_waits(fetches_s, steps_s, workers, depth))
    return looped(draw, np.concatenate(steps), np.concatenate(waits), STARVED)


def evicted_page_cache(draw: Draw, seconds: float) -> list[Work]:
    """Runs of batches come from memory, others from a disk that seeks, as the cache was left."""
    workers = draw.integer(1, 8)
    step_s = draw.log_uniform(max(0.1, 0.6 / workers), 3)
    steps_s = step_times(draw, seconds, step_s)
    run_s, missing = draw.log_uniform(10, 600), draw.uniform(0.15, 0.7)
    hits = draw.rng.geometric(min(1, step_s / run_s), steps_s.size)
    misses = draw.rng.geometric(min(1, step_s * (1 - missing) / missing / run_s), steps_s.size)
    runs = np.column_stack((hits, misses)).ravel()
    runs = runs[: np.searchsorted(np.cumsum(runs), steps_s.size) + 1]
    is_miss = np.repeat(np.arange(runs.size) % 2 == 1, runs)[: steps_s.size]
    factors = np.where(is_miss, draw.log_uniform(1.3, 6), draw.uniform(0.05, 0.8))
    seeks = draw.rng.gamma(draw.log_uniform(2, 200), size=steps_s.size)
    return fed(draw, steps_s, workers * step_s * factors * seeks / seeks.mean(), workers)


def ranks_with_a_loader_each(draw: Draw, seconds: float) -> list[Work]:
    """Data-parallel ranks with a loader each; the all-reduce waits for the latest batch."""
    ranks, depth = range(draw.gpus), draw.integer(1, 9) - 1
    step_s = draw.log_uniform(0.6, 4)
    count = how_many(seconds, step_s)
    spread, load = draw.log_uniform(0.05, 1.2), draw.log_uniform(0.8, 2.2)
    disks = draw.noise(len(ranks), draw.uniform(0, 0.3))
    fetches_s = [(step_s * load * disk * draw.noise(count, spread)).tolist() for disk in disks]
    spreads = draw.log_uniform(1e-3, 0.03)
    steps_s = [(step_s * draw.noise(count, spreads)).tolist() for _ in ranks]
    ready, taken = [0.0] * len(ranks), [[0.0] * (depth + 1) for _ in ranks]
    requested, ends, computed = 0.0, [], [[0.0] * count for _ in ranks]
    for i in range(count):
        ended = requested
        for rank in ranks:
            taken_s = taken[rank]
            ready[rank] = max(ready[rank], taken_s[i]) + fetches_s[rank][i]
            taken_s.append(max(requested, ready[rank]))
            computed[rank][i] = taken_s[-1] + steps_s[rank][i]
            ended = max(ended, computed[rank][i])
        ends.append(ended)
        requested = ended + 0.004
    waits_in = State.SPINNING if draw.chance(0.6) else IDLE  # NCCL's kernels spin, Gloo's sleep
    works = []
    for rank in ranks:
        begins = np.asarray(taken[rank][depth + 1 :])
        done, end = np.asarray(computed[rank]), np.asarray(ends)
        asked_at = np.concatenate(([0.0], end[:-1] + 0.004))
        host_s = np.full(count, 0.004)
        parts = (begins - asked_at, STARVED), (done - begins, BUSY), (end - done, waits_in)
        works.append(in_turn(*parts, (host_s, IDLE)))
    return works
