"""Machines that pause for something else than input, and those that hardly pause."""

from __future__ import annotations

import numpy as np

from tests.truth.renewal.device import (
    Draw,
    State,
    Work,
    fed,
    host_gaps,
    how_many,
    in_turn,
    looped,
    spans_of_seconds,
    step_times,
)

IDLE, BUSY, STARVED, AWAY = State.IDLE, State.BUSY, State.STARVED, State.AWAY


def checkpoints(draw: Draw, seconds: float) -> list[Work]:
    """The model is saved every so many steps, or at the first step after so many seconds."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.06, 6))
    save_s = draw.log_uniform(0.6, 90)
    every_s = save_s / draw.log_uniform(0.015, 1)
    if draw.chance(0.25):
        at = np.flatnonzero(np.diff(np.cumsum(steps_s) // every_s)) + 1
    else:
        every = max(1, round(every_s / float(steps_s.mean())))
        at = np.arange(every, steps_s.size, every)
    idle_s = np.zeros(steps_s.size)
    idle_s[at] = save_s * draw.noise(at.size, draw.log_uniform(0.003, 0.35))
    return looped(draw, steps_s, idle_s, IDLE)


def evaluations_on_the_cpu(draw: Draw, seconds: float) -> list[Work]:
    """After each epoch the GPU predicts for a while, then the CPU scores what it reported."""
    epoch_s, score_s = draw.log_uniform(10, 900), draw.log_uniform(1.5, 200)
    count = how_many(seconds, epoch_s)
    shortening = 1 + draw.uniform(0, 2) * np.exp(-np.arange(count) / draw.log_uniform(1, 30))
    return [
        in_turn(
            (epoch_s * draw.noise(count, draw.log_uniform(1e-4, 0.03)), BUSY),
            (draw.log_uniform(0.05, 3), IDLE),
            (epoch_s * draw.log_uniform(0.005, 0.3) * draw.noise(count, 0.005), BUSY),
            (score_s * shortening * draw.noise(count, draw.log_uniform(0.005, 0.3)), IDLE),
        )
    ]


def logs_and_plots(draw: Draw, seconds: float) -> list[Work]:
    """Every so many steps metrics are sent, and every so many of those a picture is drawn."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.06, 4))
    send_s = draw.log_uniform(0.5, 4)
    every = max(1, round(send_s / draw.log_uniform(0.03, 0.8) / float(steps_s.mean())))
    per_plot = every * draw.integer(2, 50)
    idle_s = np.zeros(steps_s.size)
    idle_s[::every] = send_s * draw.noise(idle_s[::every].size, draw.log_uniform(0.02, 0.6))
    idle_s[::per_plot] += draw.log_uniform(1, 15) * draw.noise(idle_s[::per_plot].size, 0.15)
    return looped(draw, steps_s, idle_s, IDLE)


def recompiling(draw: Draw, seconds: float) -> list[Work]:
    """Each new shape is compiled when it is first seen: often at first, then rarely."""
    step_s = draw.log_uniform(0.08, 4)
    count = how_many(seconds, step_s)
    shapes = np.minimum(draw.rng.zipf(draw.uniform(1.3, 2.2), count), draw.integer(20, 3_000))
    firsts = np.unique(shapes, return_index=True)[1]
    compile_s = np.zeros(count)
    costs_s = draw.log_uniform(1, 60) * draw.noise(firsts.size, draw.uniform(0.05, 0.5))
    compile_s[firsts] = costs_s
    sizes = draw.noise(int(shapes.max()) + 1, draw.uniform(0.02, 0.4))
    return looped(draw, step_s * sizes[shapes], compile_s, IDLE)


def slow_network_rounds(draw: Draw, seconds: float) -> list[Work]:
    """After some local steps parameters go to other machines over a slow or shared network."""
    local_s, peers = draw.log_uniform(0.5, 60), draw.integer(1, 15)
    count = how_many(seconds, local_s)
    spread = draw.log_uniform(1e-3, 0.1)
    own_s = local_s * draw.noise(count, spread)
    peers_s = local_s * draw.noise(count * peers, spread + draw.log_uniform(1e-3, 0.3))
    straggling_s = np.maximum(0, peers_s.reshape(count, peers).max(axis=1) - own_s)
    traffic = draw.drift(count, draw.log_uniform(1, 100), draw.uniform(0, 0.5))
    transfer_s = max(0.5, local_s * draw.log_uniform(0.03, 1.5)) * traffic
    transfer_s *= draw.noise(count, draw.log_uniform(0.005, 0.3))
    return [in_turn((own_s, BUSY), (straggling_s + transfer_s, IDLE))] * (draw.gpus // 2)


def federated_rounds(draw: Draw, seconds: float) -> list[Work]:
    """A client trains on its own data, then waits for the slowest and for its next turn."""
    local_s, clients = draw.log_uniform(3, 300), draw.integer(2, 50)
    count = how_many(seconds, local_s)
    others_s = local_s * draw.noise(count * clients, draw.uniform(0.1, 0.8)).reshape(count, clients)
    own_s = local_s * draw.noise(count, draw.log_uniform(2e-3, 0.05))
    aggregate_s = draw.log_uniform(0.5, 30) * draw.noise(count, 0.3)
    skipped = draw.rng.geometric(draw.uniform(0.3, 1), count) - 1
    rounds_s = skipped * (others_s.mean(axis=1) * draw.uniform(1, 2) + aggregate_s)
    waits_s = np.maximum(0, others_s.max(axis=1) - own_s) + aggregate_s + rounds_s
    return [in_turn((own_s, BUSY), (waits_s, IDLE))]


def inference_server(draw: Draw, seconds: float) -> list[Work]:
    """An LLM answers requests: daily load, bursts of visitors, replies as long as they get."""
    mean_s, load = draw.log_uniform(0.25, 20), draw.log_uniform(0.03, 1.2)
    minutes = np.arange(int(seconds / 60) + 2)
    daily = 1 + draw.uniform(0, 0.9) * np.sin(2 * np.pi * (minutes / 1440 + draw.rng.random()))
    rates = daily * draw.drift(minutes.size, draw.log_uniform(1, 30), draw.uniform(0, 1))
    counts = draw.rng.poisson(60 * load / mean_s * np.minimum(rates, 3))
    starts_s = np.sort(60 * (np.repeat(minutes, counts) + draw.rng.random(counts.sum())))
    longest_s = mean_s * draw.uniform(1.5, 8)
    replies_s = draw.log_uniform(0.02, 0.3) + mean_s * draw.noise(
        counts.sum(), draw.uniform(0.3, 1.2)
    )
    replies_s = np.minimum(replies_s, longest_s)
    if draw.chance(0.5):  # one after the other, else as many at once as come
        done_s = np.cumsum(replies_s)
        starts_s = done_s - replies_s + np.maximum.accumulate(starts_s - done_s + replies_s)
    return [Work(spans_of_seconds(starts_s, starts_s + replies_s))]


def notebook(draw: Draw, seconds: float) -> list[Work]:
    """Someone runs a cell, reads, types, and goes for a coffee."""
    cell_s, think_s = draw.log_uniform(0.5, 60), draw.log_uniform(5, 150)
    count = how_many(seconds, cell_s + think_s)
    cells_s = cell_s * draw.noise(count, draw.uniform(0.8, 1.8))
    thoughts_s = think_s * draw.noise(count, draw.uniform(0.7, 1.4))
    is_break = draw.rng.random(count) < draw.uniform(0, 0.06)
    breaks_s = is_break * draw.rng.uniform(300, 2_400, count)
    return [in_turn((thoughts_s + breaks_s, IDLE), (cells_s, BUSY))]


def two_tenants(draw: Draw, seconds: float) -> list[Work]:
    """Two programs take turns on a GPU; each has work on the host before its next turn."""
    bursts_s = [draw.log_uniform(0.4, 30) for _ in range(2)]
    hosts_s = [burst * draw.log_uniform(0.4, 6) for burst in bursts_s]
    count = how_many(seconds, min(bursts_s))
    means_s = (*bursts_s, *hosts_s)
    spreads = [draw.log_uniform(0.005, 0.7) for _ in means_s]
    drawn = [(s * draw.noise(count, by)).tolist() for s, by in zip(means_s, spreads, strict=True)]
    bursts, hosts = drawn[:2], drawn[2:]
    handover_s, is_free = draw.log_uniform(0.01, 1.5), 0.0
    is_ready = [0.0, draw.uniform(0, hosts_s[0])]
    begins: list[float] = []
    ends: list[float] = []
    while is_free < seconds and len(ends) < count:
        who = 0 if is_ready[0] <= is_ready[1] else 1
        begin = max(is_ready[who], is_free)
        end = begin + bursts[who][len(ends)]
        is_free, is_ready[who] = end + handover_s, end + hosts[who][len(ends)]
        begins.append(begin)
        ends.append(end)
    return [Work(spans_of_seconds(np.asarray(begins), np.asarray(ends)))]


def rollouts(draw: Draw, seconds: float) -> list[Work]:
    """Environments run on the CPU, asking a small policy now and then; then the GPU learns."""
    learn_s, play_s = draw.log_uniform(0.5, 60), draw.log_uniform(0.6, 120)
    count = how_many(seconds, learn_s + play_s)
    plays_s = play_s * draw.noise(count, draw.log_uniform(0.01, 0.5))
    learns_s = learn_s * draw.noise(count, draw.log_uniform(0.002, 0.1))
    done_s = np.cumsum(plays_s + learns_s)
    begins_s, ends_s = done_s - learns_s, done_s
    if draw.chance(0.5):
        every_s = draw.log_uniform(0.15, 3)
        asks_s = np.arange(0, float(done_s[-1]), every_s)
        begins_s = np.concatenate((begins_s, asks_s))
        ends_s = np.concatenate((ends_s, asks_s + every_s * draw.log_uniform(0.01, 0.2)))
    return [Work(spans_of_seconds(begins_s, ends_s))]


def short_jobs(draw: Draw, seconds: float) -> list[Work]:
    """A sweep over hyperparameters: short jobs, each imports, trains and is scored at its end."""
    train_s, start_s = draw.log_uniform(15, 600), draw.log_uniform(4, 60)
    count = how_many(seconds, train_s + start_s)
    trains_s = train_s * draw.noise(count, draw.uniform(0.02, 0.9))
    return [
        in_turn(
            (start_s * draw.noise(count, draw.log_uniform(0.02, 0.3)), AWAY),
            (trains_s, BUSY),
            (draw.log_uniform(0.3, 8) * draw.noise(count, 0.2), IDLE),
            (trains_s * draw.uniform(0.02, 0.1), BUSY),
        )
    ]


def rendered_frames(draw: Draw, seconds: float) -> list[Work]:
    """A renderer prepares each frame on the CPU, renders it and writes it; scenes change."""
    frame_s, sync_s = draw.log_uniform(1, 120), draw.log_uniform(0.6, 25)
    count = how_many(seconds, frame_s + sync_s)
    frames_s = frame_s * draw.drift(count, draw.log_uniform(5, 200), draw.uniform(0.05, 0.6))
    frames_s *= draw.noise(count, draw.log_uniform(0.002, 0.1))
    syncs_s = sync_s * draw.drift(count, draw.log_uniform(5, 200), 0.2) * draw.noise(count, 0.05)
    syncs_s[:: draw.integer(10, 300)] += draw.log_uniform(3, 90)
    return [in_turn((syncs_s, IDLE), (frames_s, BUSY))]


def garbage_collections(draw: Draw, seconds: float) -> list[Work]:
    """A collector scans a heap every so many steps; it grows until it is freed."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.06, 3))
    scan_s = draw.log_uniform(0.4, 5)
    every = max(1, round(scan_s / draw.log_uniform(0.02, 0.4) / float(steps_s.mean())))
    idle_s = np.zeros(steps_s.size)
    scans = np.arange(idle_s[::every].size)
    heap = 1 + draw.uniform(0, 2) * (scans % draw.integer(5, 200)) / 100
    idle_s[::every] = scan_s * heap * draw.noise(scans.size, draw.log_uniform(0.01, 0.15))
    return looped(draw, steps_s, idle_s, IDLE)


def host_work(draw: Draw, seconds: float) -> list[Work]:
    """Python does something with each result (search, matching, rewards) before the next step."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.3, 10))
    work_s = draw.rng.gamma(draw.log_uniform(1.5, 5_000), size=steps_s.size)
    work_s *= draw.log_uniform(0.5, 8) / work_s.mean()
    return looped(draw, steps_s, work_s, IDLE)


def optimizer_offload(draw: Draw, seconds: float) -> list[Work]:
    """Gradients go to the CPU, whose optimizer steps once in 1 to 64 micro-batches."""
    micro_s, per_update = draw.log_uniform(0.1, 3), draw.integer(1, 64)
    count = how_many(seconds, micro_s * per_update)
    jitter = draw.log_uniform(0.002, 0.5)
    return [
        in_turn(
            (micro_s * per_update * draw.noise(count, jitter / per_update**0.5), BUSY),
            (draw.log_uniform(0.5, 12) * draw.noise(count, draw.log_uniform(0.003, 0.08)), IDLE),
        )
    ]


def steady_training(draw: Draw, seconds: float) -> list[Work]:
    """A large model whose loader is always ahead; it is saved now and then, briefly."""
    steps_s = step_times(draw, seconds, draw.log_uniform(0.06, 10))
    idle_s = np.zeros(steps_s.size)
    every = max(1, round(draw.log_uniform(300, 3_600) / float(steps_s.mean())))
    idle_s[every - 1 :: every] = draw.log_uniform(0.3, 6)
    return looped(draw, steps_s, idle_s, IDLE)


def well_fed_training(draw: Draw, seconds: float) -> list[Work]:
    """Workers that are 20 to 65 % busy, with some noise, before a queue."""
    workers = draw.integer(2, 16)
    steps_s = step_times(draw, seconds, draw.log_uniform(0.1, 5))
    fetches_s = draw.uniform(0.2, 0.65) * workers * steps_s.mean()
    noise = draw.noise(steps_s.size, draw.log_uniform(0.02, 0.35))
    return fed(draw, steps_s, fetches_s * noise, workers)


def offline_inference(draw: Draw, seconds: float) -> list[Work]:
    """Batches of a long backlog, of varying length, with a short gap between two."""
    batch_s = draw.log_uniform(0.5, 60)
    count = how_many(seconds, batch_s)
    batches_s = batch_s * draw.noise(count, draw.uniform(0.05, 0.8))
    return [in_turn((batches_s, BUSY), (host_gaps(draw, count), IDLE))]
