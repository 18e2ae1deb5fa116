"""What does a tag cost: nanoseconds a record, and a step of a loop, next to two clock reads?

    python -m benchmarks.bench_hook_cost --json

The peer is the least that any timing hook does: two clock reads. ``benchmarks.bench_hooks_keras``
measures the cost of a callback in a Keras fit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

_REPEATS = 7
_CALLS = 100_000
_GOAL_NS = 2_000
_RECORDS = ("ENTER", "STEP", "AMOUNT", "DEVICE_DONE")


def main() -> int:
    """Print a table; 1 if a record costs more than the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpumon-bench-") as folder:
        os.environ["GPUMON_RUNTIME_DIR"] = folder
        costs = _costs_ns()
    for name, cost_ns in costs.items():
        print(f"  {name:42} {cost_ns:8.0f} ns")
    if args.json:
        print(json.dumps(costs))
    return int(max(costs[name] for name in _RECORDS) > _GOAL_NS)


def _costs_ns() -> dict[str, float]:
    from trainer_hooks import phase, step, timed
    from trainer_hooks.keras.fit_figures import StepTimes
    from trainer_hooks.ring.process_ring import process_ring

    writer = process_ring().writer
    assert writer is not None
    region, train_step = phase("input_wait"), phase("train_step")
    batches = iter(timed(itertools.repeat(None)))

    def tagged() -> None:
        with region:
            pass

    def loop_step() -> None:
        next(batches)
        with train_step:
            pass
        step(32)

    times, ends = StepTimes(), itertools.count(1)
    times.begin_epoch(0)

    def end_of_step() -> None:
        number = next(ends)
        times.done(number, number)

    def clocks() -> None:
        time.monotonic_ns()
        time.monotonic_ns()

    cases: dict[str, Callable[[], object]] = {
        "two clock reads (the peer)": clocks,
        "ENTER": lambda: writer.enter(4),
        "STEP": writer.step,
        "STEP and SAMPLES": lambda: writer.step(1, 32),
        "AMOUNT": lambda: writer.amount(1, 10),
        "DEVICE_DONE": lambda: writer.device_done(1, 2),
        "with phase(): two ENTERs": tagged,
        "step()": step,
        "the end of a step, for its median": end_of_step,
        "a loop's step: timed(), phase(), step(32)": loop_step,
    }
    return {name: _cost_ns(call) for name, call in cases.items()}


def _cost_ns(call: Callable[[], object]) -> float:
    """CPU of one call, with that of the loop: the least of some runs, as others only add to it."""

    def once() -> float:
        began_ns = time.thread_time_ns()
        for _ in range(_CALLS):
            call()
        return (time.thread_time_ns() - began_ns) / _CALLS

    return min(once() for _ in range(_REPEATS))


if __name__ == "__main__":
    raise SystemExit(main())
