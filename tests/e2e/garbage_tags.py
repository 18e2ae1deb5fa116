"""Training runs that tag nonsense, each in its own way, until they are ended.

python garbage_tags.py SPANS GPU KIND

calls           calls hooks with meaningless arguments, in any order
records         writes valid records into its own ring that contradict each other
bytes           writes random bytes over its own ring, again and again
workers         is healthy, and has forked workers that tag nonsense
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from gpumon.core.phase import PHASES
from gpumon.core.ring_format.events import RingKind
from gpumon.core.ring_format.format import HEADER_BYTES, KIND_SHIFT, RING_BYTES, WORD_MASK
from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.ring.process_ring import process_ring

STEP_S = 0.1
MOST_S = 0.01
"""How long one piece of nonsense takes."""
WORDS: tuple[Any, ...] = ("input_wait", "train_step", "validation", "", "\0", "\u202e", 7, None, [])
NUMBERS: tuple[Any, ...] = (0, -1, 1, 1 << 40, 1 << 70, -(1 << 63), 0.5, float("nan"), "7", None)


def main(spans: str, gpu: str, kind: str) -> None:
    """Begin as a run does, then tag nonsense of that kind."""
    random = Random(kind)
    if kind == "workers":
        train_with_workers(BusySpans(Path(spans), int(gpu)))
    with phase("train_step"):
        pass
    step()
    for _ in itertools.count():
        time.sleep(MOST_S * random.random())
        KINDS[kind](random)


def call(random: Random) -> None:
    """Misuse the hooks."""
    warnings.simplefilter("ignore")
    with suppress(Exception):
        region = phase(random.choice(WORDS))
        region.__enter__()
        if random.random() < 0.5:
            region.__exit__()
    with suppress(Exception):
        step(samples=random.choice(NUMBERS))
    with suppress(Exception):
        next(iter(timed(random.choice(WORDS))))


def record(random: Random) -> None:
    """Write nonsense in valid records."""
    writer = process_ring().writer
    assert writer is not None
    for _ in range(10):
        kind, number = random.choice([*RingKind]), random.randrange(len(PHASES))
        now_ns = time.monotonic_ns()
        at_ns = random.choice([0, 1, now_ns, now_ns - 10**10, now_ns + 10**13, WORD_MASK])
        value = random.choice([0, 1, random.getrandbits(64), random.getrandbits(20)])
        writer._put(kind << KIND_SHIFT | number, at_ns, value)
    writer.steps = random.choice([0, 1, 1 << 52])
    writer.since_ns = random.choice([0, time.monotonic_ns(), 1 << 61])
    gpus = random.choice([None, (), ("1",), ("nonsense", "\0"), ("1",) * 99])
    writer.write_facts(replace(writer.facts, rank=random.choice([0, 7, -3]), gpus=gpus))
    writer.settle()


def scribble(random: Random) -> None:
    """Write bytes over any part of the ring, including its first page."""
    (ring,) = Path(os.environ["GPUMON_RUNTIME_DIR"], "phases").glob(f"{os.getpid()}-*.ring")
    with ring.open("r+b") as file:
        file.seek(random.choice([0, HEADER_BYTES, random.randrange(RING_BYTES - 4096)]))
        file.write(random.randbytes(random.choice([8, 512, 4096])))


KINDS = {"calls": call, "records": record, "bytes": scribble}


def train_with_workers(device: BusySpans) -> None:
    """Train correctly, with forked workers that tag nonsense."""
    process_ring()  # before they are forked, as a loader's workers are in the second epoch
    context = multiprocessing.get_context("fork")
    for number in range(2):
        context.Process(target=work_badly, args=(number,), daemon=True).start()
    for _ in itertools.count():
        with phase("input_wait"):  # no sleep: a busy machine would make a loss of it
            pass
        with phase("train_step"):
            device.sleep(STEP_S)
        step()


def work_badly(number: int) -> None:
    """Tag nonsense until the training process ends."""
    parent, random = os.getppid(), Random(number)
    while os.getppid() == parent:
        time.sleep(MOST_S * random.random())
        call(random)


if __name__ == "__main__":
    main(*sys.argv[1:])
