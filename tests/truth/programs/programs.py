"""The programs: what each does; parameters are drawn where they are used.

Times are in ms, sizes in MB, rates in MB per ms, loads and shares from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import count

from tests.truth.programs.engine import (
    Act,
    Barrier,
    Gpu,
    Loader,
    Machine,
    Making,
    Process,
    Program,
    Queue,
    Shared,
    Steps,
    decoding,
    metrics_call,
    neighbours,
    sessions,
    train,
)


def loading(m: Machine, workers: int, make: Callable[[], Making]) -> Callable[[], Loader]:
    """Start a loader that holds one batch per worker, PyTorch's default, or more."""
    return partial(Loader, m, workers, make, m.rng.choice((1, 1, 1, 3, 7)), m.log(50, 5_000))


def epoch_of(m: Machine, steps: Steps) -> int | None:
    """Half of the runs restart their workers after epochs of 1 to 40 minutes."""
    return m.rng.choice((None, max(2, round(m.log(1, 40) * 60_000 / steps.ms))))


def few_workers(m: Machine, most: float) -> Callable[[Process, float], Program]:
    """A training run whose workers make 0.2 to ``most`` of the batches that it could use."""
    workers = m.rng.choice((1, 2, 2, 3, 4, 4, 6, 8))
    steps = Steps(m, m.log(180, 1_500))
    late = m.rng.uniform(0.2, most)
    make = decoding(m, workers * steps.ms / late, m.log(0.01, 0.25), mb=m.log(1, 60))
    return train(m, steps, loading(m, workers, make), epoch=epoch_of(m, steps))


def jpeg_few_workers(m: Machine) -> None:
    """JPEG training: 1 to 8 workers, fewer than it needs."""
    sessions(m, Gpu(m), few_workers(m, 0.92))
    if m.rng.random() < 0.4:
        neighbours(m, m.log(50, 500), m.rng.uniform(0.1, 0.5))


def loader_in_the_loop(m: Machine) -> None:
    """No workers: the loop makes each batch itself, in 0.3 to 8 s."""
    steps = Steps(m, m.log(200, 5_000))
    steps.lead_ms = 0.0
    make = decoding(m, m.log(300, 8_000), m.log(0.01, 0.3), mb=m.log(1, 60))

    def run(process: Process, end_ms: float) -> Program:
        while m.now_ms < end_ms:
            yield from process.ask(_just(make))
            yield from steps.one(process)

    sessions(m, Gpu(m), run)


def _just(make: Callable[[], Making]) -> Program:
    yield from make()


def segmentation_augmented(m: Machine) -> None:
    """Augmentation in more workers than there are cores left, cost varies by image."""
    m.cpu.rate = float(m.rng.choice((2, 3, 4, 6)))
    workers = round(m.cpu.rate * m.rng.uniform(1.0, 2.5))
    steps = Steps(m, m.log(250, 2_500))
    core_ms = m.cpu.rate * steps.ms / m.rng.uniform(0.25, 0.85)
    make = decoding(m, core_ms, m.log(0.05, 0.4))
    sessions(m, Gpu(m), train(m, steps, loading(m, workers, make), epoch=epoch_of(m, steps)))


def video_clips(m: Machine) -> None:
    """Decoding of clips whose lengths vary: a long one delays all behind it."""
    workers = m.rng.choice((2, 3, 4, 6, 8))
    steps = Steps(m, m.log(250, 2_000))
    make = decoding(m, workers * steps.ms / m.rng.uniform(0.3, 0.95), m.rng.uniform(0.35, 1.0))
    sessions(m, Gpu(m), train(m, steps, loading(m, workers, make), epoch=epoch_of(m, steps)))


def object_store_shards(m: Machine) -> None:
    """Each worker fetches a shard, then yields its batches; the link is too slow for the GPU."""
    workers, batches = m.rng.choice((1, 1, 2, 4)), round(m.log(4, 60))
    steps = Steps(m, m.log(200, 1_500))
    shard_ms = batches * workers * steps.ms
    link_ms = shard_ms * m.log(0.1, 3)
    link = Shared(m, float(workers), most=m.rng.choice((1.0, 1.0, 2.0)))
    slow = m.log(0.05, 0.5)

    def make() -> Making:
        yield m.spread(60, 1.0)
        yield from link.use(m.spread(link_ms, slow))
        return batches

    sessions(m, Gpu(m), train(m, steps, partial(Loader, m, workers, make)))


def busy_network_disk(m: Machine) -> None:
    """Small files on a network disk that is fast enough until others use it."""
    workers = m.rng.choice((2, 4, 8))
    steps = Steps(m, m.log(250, 1_500))
    alone = m.rng.uniform(1.1, 2.0)
    make = decoding(m, steps.ms * 0.3, 0.1, mb=m.disk.rate * steps.ms / alone)
    users = round(workers * m.log(1, 5))
    for _ in range(m.rng.choice((1, 2, 3))):
        neighbours(m, m.log(100, 1_000), m.rng.uniform(0.2, 0.6), users)
    sessions(m, Gpu(m), train(m, steps, loading(m, workers, make)))


def cold_cache(m: Machine) -> None:
    """The first epoch reads and decodes; later ones come from memory."""
    steps = Steps(m, m.log(200, 1_000))
    epoch = round(m.log(6, 60) * 60_000 / steps.ms)
    workers = m.rng.choice((1, 2, 4))
    cold = decoding(m, workers * steps.ms / m.rng.uniform(0.2, 0.7), m.log(0.02, 0.4), mb=10)

    def run(process: Process, end_ms: float) -> Program:
        made = count()

        def make() -> Making:
            if next(made) < epoch:
                return (yield from cold())
            yield 2.0
            return 1

        yield from train(m, steps, partial(Loader, m, workers, make, 4))(process, end_ms)

    sessions(m, Gpu(m), run)


def late_data_parallel(m: Machine) -> None:
    """2 or 4 GPUs whose loaders share too few cores; all wait for the slowest at each step."""
    ranks, workers = m.rng.choice((2, 4)), m.rng.choice((1, 2, 3))
    m.cpu.rate = float(ranks * workers)
    steps = Steps(m, m.log(400, 2_500))
    steps.lead_ms = 0.0
    core_ms = workers * steps.ms / m.rng.uniform(0.3, 0.85)
    make = decoding(m, core_ms, m.log(0.03, 0.3))
    peers = Barrier(m, ranks)
    together = ((1, lambda _: peers.wait()),)
    for _ in range(ranks):
        sessions(m, Gpu(m), train(m, steps, partial(Loader, m, workers, make), together))


def two_late_jobs(m: Machine) -> None:
    """Two training runs with too few workers on one GPU."""
    gpu = Gpu(m)
    for _ in range(2):
        sessions(m, gpu, few_workers(m, 0.45))


def jpeg_enough_workers(m: Machine) -> None:
    """The same with workers to spare; some validate with a new loader each time."""
    workers = m.rng.choice((4, 8))
    steps = Steps(m, m.log(250, 1_500))
    make = decoding(m, workers * steps.ms * m.rng.uniform(0.2, 0.7), m.log(0.01, 0.1))
    validation = Steps(m, steps.ms / 3)
    spawn_ms, every = m.log(300, 4_000), round(m.log(5, 40) * 60_000 / steps.ms)

    def validate(process: Process) -> Program:
        yield from process.ask(_pause(spawn_ms))
        for _ in range(round(m.log(20, 100))):
            yield from validation.one(process)

    acts = m.rng.choice(((), ((every, validate),)))
    sessions(m, Gpu(m), train(m, steps, loading(m, workers, make), acts))


def _pause(ms: float) -> Program:
    yield ms


def packed_tokens(m: Machine) -> None:
    """Text from a memory map: never waits; a metric server is called every n steps."""
    steps = Steps(m, m.log(250, 4_000))
    every = round(m.log(10, 300) * 4_000 / steps.ms) + 1
    acts = m.rng.choice(((), ((every, lambda _: metrics_call(m)),)))
    sessions(m, Gpu(m), train(m, steps, acts=acts))


def tabular_tiny_steps(m: Machine) -> None:
    """Steps of some ms that Python launches: a level of 5 to 70 %, no pauses."""
    steps = Steps(m, m.log(2_000, 6_000), sigma=0.02)
    steps.fill, steps.host_ms = m.log(0.05, 0.7), 0.0
    sessions(m, Gpu(m), train(m, steps))


def _checkpoints(m: Machine, gpu: Gpu, *, beside: bool) -> None:
    steps = Steps(m, m.log(500, 8_000), sigma=m.log(0.002, 0.3))
    size_mb = m.log(1_500, 80_000)
    write_ms = size_mb / m.disk.rate
    every = max(2, round(write_ms * m.log(0.8, 20) / steps.ms))
    copy_mb_per_ms = m.log(1, 12)
    idle = Queue(m, 1)
    idle.count = 1

    def write() -> Program:
        yield from m.disk.use(size_mb)
        yield from idle.put()

    def save(process: Process) -> Program:
        if beside:
            yield from idle.get()
        yield size_mb / copy_mb_per_ms
        if beside:
            m.start(write())
        else:
            yield from m.disk.use(size_mb)

    neighbours(m, m.log(100, 3_000), m.rng.uniform(0.1, 0.6), m.rng.choice((1, 2, 4)))
    logs = round(20_000 / steps.ms) + 1
    sessions(m, gpu, train(m, steps, acts=((every, save), (logs, lambda _: metrics_call(m)))))


def finetune_checkpoints(m: Machine) -> None:
    """Fine-tuning that writes 1.5 to 80 GB to a disk that others use, every n steps."""
    _checkpoints(m, Gpu(m), beside=False)


def finetune_asynchronous_checkpoints(m: Machine) -> None:
    """The same, written in the background; training waits for the copy and the last write."""
    _checkpoints(m, Gpu(m), beside=True)


def two_checkpointing_jobs(m: Machine) -> None:
    """Two of them on one GPU and one disk."""
    gpu = Gpu(m)
    _checkpoints(m, gpu, beside=False)
    _checkpoints(m, gpu, beside=bool(m.rng.getrandbits(1)))


def generation_evaluation(m: Machine) -> None:
    """Every n steps it generates texts, and the host tokenises and scores them."""
    steps = Steps(m, m.log(300, 4_000), sigma=m.log(0.005, 0.2))
    texts, text_ms = round(m.log(2, 40)), m.log(100, 3_000)
    host_ms, sigma = m.log(200, 6_000), m.rng.uniform(0.1, 0.9)
    every = max(2, round(texts * (text_ms + host_ms) * m.log(0.5, 15) / steps.ms))

    def evaluate(process: Process) -> Program:
        for _ in range(texts):
            yield from process.compute(m.spread(text_ms, 0.3), fill=0.6)
            yield from m.cpu.use(m.spread(host_ms, sigma))

    sessions(m, Gpu(m), train(m, steps, acts=((every, evaluate),)))


def roll_outs(m: Machine) -> None:
    """Reinforcement learning: actors play on the CPU, then it learns from what they played."""
    actors, steps = m.rng.choice((4, 8, 16, 32)), Steps(m, m.log(150, 1_500))
    learn, play_ms = round(m.log(3, 60)), m.log(700, 40_000)
    core_ms = play_ms * min(1.0, m.cpu.rate / actors)
    sigma, policy = m.log(0.02, 0.6), m.rng.choice((0.0, m.rng.uniform(0.02, 0.15)))

    def play(process: Process) -> Program:
        done = Queue(m, actors)

        def actor() -> Program:
            yield from m.cpu.use(m.spread(core_ms, sigma))
            yield from done.put()

        for _ in range(actors):
            m.start(actor())
        if policy:
            yield from process.compute(play_ms * 0.8, fill=policy)
        for _ in range(actors):
            yield from done.get()

    sessions(m, Gpu(m), train(m, steps, acts=((learn, play),)))


def gan_images(m: Machine) -> None:
    """Every n steps the host draws images, writes them and calls a metric server."""
    steps = Steps(m, m.log(200, 1_500))
    draw_ms, every = m.log(400, 8_000), round(m.log(10, 300))

    def log_images(process: Process) -> Program:
        yield from process.compute(m.log(50, 300))
        yield from m.cpu.use(m.spread(draw_ms, 0.1))
        yield from m.disk.use(m.log(1, 40))
        yield from metrics_call(m)

    sessions(m, Gpu(m), train(m, steps, acts=((every, log_images),)))


def federated_client(m: Machine) -> None:
    """Rounds: some local steps, upload, wait for the slowest of the others, download."""
    steps, local = Steps(m, m.log(200, 1_500)), round(m.log(5, 200))
    clients, transfer_ms = m.rng.choice((2, 4, 8)), m.log(300, 15_000)
    peers = Barrier(m, clients + 1)
    sigma, pace = m.rng.uniform(0.05, 0.6), m.log(0.7, 1.8)

    def client() -> Program:
        while True:
            yield m.spread(steps.ms * local * pace + 2 * transfer_ms, sigma)
            yield from peers.wait()

    def exchange(process: Process) -> Program:
        yield m.spread(transfer_ms, 0.2)
        yield from peers.wait()
        yield m.spread(transfer_ms, 0.2)

    for _ in range(clients):
        m.start(client())
    sessions(m, Gpu(m), train(m, steps, acts=((local, exchange),)))


def slow_rank(m: Machine) -> None:
    """Data parallel: 1 or 2 ranks here wait for a slower one elsewhere."""
    here, elsewhere = m.rng.choice((1, 2)), m.rng.choice((1, 3, 6))
    steps, every = Steps(m, m.log(500, 6_000)), round(m.log(1, 12))
    peers = Barrier(m, here + elsewhere)
    meet: tuple[tuple[int, Act], ...] = ((every, lambda _: peers.wait()),)
    for rank in range(here + elsewhere):
        gpu = Gpu(m, seen=rank < here)
        own = Steps(m, steps.ms, sigma=m.log(0.01, 0.25))
        if rank == here + elsewhere - 1:
            own.ms *= m.log(1.1, 3)
        sessions(m, gpu, train(m, own, acts=meet))


def pipeline_bubbles(m: Machine) -> None:
    """2 to 4 stages on as many GPUs: the pipeline fills and drains in each step."""
    stages, micro = m.rng.choice((2, 3, 4)), m.rng.choice((2, 3, 4, 6, 8))
    forward_ms, sigma = m.log(200, 1_500), m.log(0.01, 0.15)
    inner = range(stages - 1)
    down, up = ([None, *(Queue(m, micro) for _ in inner), None] for _ in ("forward", "backward"))
    update = Barrier(m, stages)

    def through(process: Process, ms: float, source: Queue | None, sink: Queue | None) -> Program:
        for _ in range(micro):
            if source:
                yield from source.get()
            yield from process.compute(m.spread(ms, sigma))
            if sink:
                yield from sink.put()

    def stage(number: int, process: Process, end_ms: float) -> Program:
        while True:
            yield from update.wait()
            if m.now_ms > end_ms:
                return
            yield from through(process, forward_ms, down[number], down[number + 1])
            yield from through(process, 2 * forward_ms, up[number + 1], up[number])

    for number in range(stages):
        sessions(m, Gpu(m), partial(stage, number))


def llm_server(m: Machine) -> None:
    """Random requests, more by day; waiting ones are answered together."""
    waiting, answer_ms = Queue(m, 1_000), m.log(500, 8_000)
    load, day, fill = m.rng.uniform(0.05, 0.9), m.rng.uniform(0, 0.9), m.rng.uniform(0.6, 1)
    hour = m.rng.uniform(0, 24)

    def people() -> Program:
        while True:
            turn = 2 * math.pi * (hour + m.now_ms / 3_600_000) / 24
            yield m.rng.expovariate(load * (1 + day * math.sin(turn)) / answer_ms)
            yield from waiting.put()

    def run(process: Process, end_ms: float) -> Program:
        while m.now_ms < end_ms:
            yield from waiting.get()
            longest_ms = m.spread(answer_ms, 0.7)
            while waiting.count:
                waiting.count -= 1
                longest_ms = max(longest_ms, m.spread(answer_ms, 0.7))
            yield from process.compute(longest_ms, fill)

    m.start(people())
    m.sessions_ms = [(m.sessions_ms[0][0], math.inf)]
    sessions(m, Gpu(m), run)


def batch_inference(m: Machine) -> None:
    """Objects from S3 in order, by a few threads; some are throttled and retried."""
    threads, link = m.rng.choice((1, 2, 4, 8)), Shared(m, m.log(0.05, 0.5))
    steps = Steps(m, m.log(200, 2_000))
    late, again = m.rng.uniform(0.3, 1.1), m.log(0.005, 0.06)
    object_mb, latency_ms = link.rate * steps.ms / late, m.log(30, 400)

    def make() -> Making:
        yield m.spread(latency_ms, 1.0)
        while m.rng.random() < again:
            yield m.log(1_000, 20_000)
        yield from link.use(m.spread(object_mb, 0.3))
        return 1

    sessions(m, Gpu(m), train(m, steps, loading(m, threads, make)))


def notebook(m: Machine) -> None:
    """A person runs cells of 0.2 to 60 s and thinks for 10 s to many minutes."""
    think_ms, cell_ms = m.log(20_000, 300_000), m.log(500, 30_000)

    def run(process: Process, end_ms: float) -> Program:
        while m.now_ms < end_ms:
            for _ in range(m.rng.choice((1, 1, 2, 5))):
                yield from process.compute(m.spread(cell_ms, 1.0), fill=m.rng.uniform(0.3, 1))
                yield m.log(50, 3_000)
            yield m.spread(think_ms, 1.2)

    sessions(m, Gpu(m), run)
