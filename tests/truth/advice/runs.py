"""Training runs that lose time to one cause, before and after the change that gpumon advises.

    python -m tests.truth.advice.runs --case checkpoints --side before --spans FILE ...

The GPU is simulated: it works for as long as a step sleeps.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, islice
from types import MappingProxyType
from typing import Final, NamedTuple

from tests.truth.host.loaders import in_the_training_thread, of_processes, of_threads
from tests.truth.host.work import (
    MIB,
    Stage,
    compute,
    join_cgroup,
    map_again,
    receive,
    run_parser,
)
from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans

STEP_S: Final = 0.030
SIDES: Final = ("before", "after")
_RECORD_BYTES: Final = 16 * MIB


class Case(NamedTuple):
    """One advice, and a training run that follows it.

    Attributes:
        cause: The cause that the advice is about.
        reason: The reason that it is based on, if any.
        change: The change, in a few words.
        batches: The loader, before and after.
        every: Another phase, its seconds, and every how many steps it occurs, before and after;
            0: never.
        at_first_s: Seconds of the first batch before the change, or of ``start_up``.
        needs: ``disk``, ``server`` or ``cgroup``, if any.
    """

    cause: str
    reason: str | None
    change: str
    batches: tuple[Callable[[Stage], Iterable[object]], Callable[[Stage], Iterable[object]]]
    every: tuple[str, float, int, int] | None = None
    at_first_s: float = 0.0
    needs: str = ""


def ready(stage: Stage) -> Iterable[object]:
    """Batches that are ready."""
    return count()


def computing(
    seconds: float, workers: int, loader: Callable[..., Iterable[object]]
) -> Callable[[Stage], Iterable[object]]:
    """Batches that each cost so many seconds of a core."""
    return lambda stage: loader(lambda number: compute(stage, seconds, number), workers)


def sleeping(seconds: float, workers: int) -> Callable[[Stage], Iterable[object]]:
    """Batches that so many threads wait for."""
    return lambda stage: of_threads(lambda number: time.sleep(seconds), workers)


def cold(stage: Stage) -> Iterator[object]:
    """Records of a file that is not in the page cache."""
    with stage.file.open("rb", buffering=0) as file:
        for number in count():
            where = number % 8 * _RECORD_BYTES
            os.posix_fadvise(file.fileno(), where, _RECORD_BYTES, os.POSIX_FADV_DONTNEED)
            yield os.pread(file.fileno(), _RECORD_BYTES, where)


def received(stage: Stage) -> Iterable[object]:
    """Batches that a slow server sends."""
    return of_threads(lambda number: receive(stage, 0.0, number), 1)


def mapped(stage: Stage) -> Iterable[object]:
    """Pages of a file that fits into memory, or does not."""
    return of_processes(lambda number: map_again(stage, 0.06, number), 1)


CASES: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "made in the training thread": Case(
            "input_wait", "cpu_bound", "a worker process makes them",
            (computing(0.025, 0, in_the_training_thread), computing(0.025, 1, of_processes)),
        ),
        "too few workers": Case(
            "input_wait", "cpu_bound", "2 workers in place of 1",
            (computing(0.050, 1, of_processes), computing(0.050, 2, of_processes)),
        ),
        "too few cores": Case(
            "input_wait", "cpu_bound", "batches that cost a third",
            (computing(0.110, 4, of_processes), computing(0.035, 4, of_processes)),
        ),
        "threads that share the GIL": Case(
            "input_wait", "gil_bound", "2 processes in place of 3 threads",
            (computing(0.050, 3, of_threads), computing(0.050, 2, of_processes)),
        ),
        "a cold disk": Case(
            "input_wait", "disk_bound", "the data set stays in memory",
            (cold, ready), needs="disk",
        ),
        "a slow server": Case(
            "input_wait", "network_bound", "a local copy", (received, ready), needs="server"
        ),
        "too little memory": Case(
            "input_wait", "memory_pressure", "memory for the data set", (mapped, ready),
            needs="cgroup",
        ),
        "reads that answer late": Case(
            "input_wait", "latency_bound", "4 reads at once in place of 1",
            (sleeping(0.060, 1), sleeping(0.060, 4)),
        ),
        "a late first batch": Case(
            "first_input_wait", None, "a smaller shuffle buffer", (ready, ready), at_first_s=6.0
        ),
        "a slow start": Case(
            "start_up", None, "a lazy start", (ready, ready),
            every=("callbacks", 0.004, 1, 1), at_first_s=6.0,
        ),
        "copies to the GPU": Case(
            "host_to_device", None, "copied while the step before computes", (ready, ready),
            every=("host_to_device", 0.025, 1, 0),
        ),
        "checkpoints": Case(
            "checkpoint", None, "every 200 steps in place of every 10", (ready, ready),
            every=("checkpoint", 0.25, 10, 200),
        ),
        "validation": Case(
            "validation", None, "every 200 steps in place of every 20", (ready, ready),
            every=("validation", 0.5, 20, 200),
        ),
        "callbacks": Case(
            "callbacks", None, "logged every 50 steps", (ready, ready),
            every=("callbacks", 0.020, 1, 50),
        ),
        "compiling": Case(
            "compile", None, "batches of one size", (ready, ready), every=("compile", 0.4, 20, 0)
        ),
        "between epochs": Case(
            "between_epochs", None, "workers that persist", (ready, ready),
            every=("between_epochs", 0.4, 20, 0),
        ),
    }
)  # fmt: skip


def train(case: Case, side: str, stage: Stage, spans: BusySpans, seconds: float) -> None:
    """Train for about so many seconds."""
    is_after = side == "after"
    is_late = case.at_first_s and not is_after
    with phase("start_up"):
        time.sleep(case.at_first_s if is_late and case.cause == "start_up" else 0.1)
    batches = iter(timed(case.batches[is_after](stage)))
    over_s = time.monotonic() + seconds
    for number in islice(count(1), 1_000_000):
        if number == 1 and is_late and case.cause == "first_input_wait":
            with phase("input_wait"):
                time.sleep(case.at_first_s)
        next(batches)
        with phase("train_step"):
            spans.sleep(STEP_S)
        step()
        if case.every is not None:
            name, lasts_s, *steps = case.every
            if steps[is_after] and number % steps[is_after] == 0:
                with phase(name):
                    time.sleep(lasts_s)
        if time.monotonic() > over_s:
            break


def main() -> None:
    """Train once."""
    parser = run_parser(__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--side", choices=SIDES, required=True)
    args = parser.parse_args()
    join_cgroup(args.cgroup)
    with BusySpans(args.spans) as spans:
        train(CASES[args.case], args.side, Stage(args.file, args.port), spans, args.seconds)
    for worker in multiprocessing.active_children():
        worker.kill()
    os._exit(0)  # threads that make batches without end would be waited for


if __name__ == "__main__":
    main()
