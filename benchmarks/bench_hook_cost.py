"""What a tag costs: nanoseconds a record, and a training step, beside a bare pair of clock reads.

    python benchmarks/bench_hook_cost.py [--keras]

The peer is the least that any timing hook does: two clock reads. ``--keras``
trains with Keras on JAX, with and without the tagger, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

_REPEATS = 7
_CALLS = 100_000
_GOAL_NS = 2_000


def main() -> int:
    """Print a table; 1 if a record costs more than the goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keras", action="store_true", help="also time Keras steps (needs JAX)")
    args = parser.parse_args()
    os.environ["GPUMON_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="gpumon-bench-")
    worst_ns = _records()
    if args.keras:
        _keras_steps()
    return 0 if worst_ns <= _GOAL_NS else 1


def _records() -> float:
    from trainer_hooks import phase, step
    from trainer_hooks.process_ring import process_ring

    writer = process_ring().writer
    assert writer is not None
    region = phase("input_wait")

    def tagged() -> None:
        with region:
            pass

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
    }
    costs = {name: _cost_ns(call) for name, call in cases.items()}
    for name, cost_ns in costs.items():
        print(f"  {name:28} {cost_ns:8.0f} ns")
    return max(costs[name] for name in ("ENTER", "STEP", "AMOUNT", "DEVICE_DONE"))


def _cost_ns(call: Callable[[], object]) -> float:
    """Median over some runs of the cost of one call, with that of the loop."""

    def once() -> float:
        began_ns = time.perf_counter_ns()
        for _ in range(_CALLS):
            call()
        return (time.perf_counter_ns() - began_ns) / _CALLS

    return statistics.median(once() for _ in range(_REPEATS))


def _keras_steps() -> None:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    import numpy as np

    from trainer_hooks import PhaseTagger

    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.ones((32, 8), "float32")

    def batches() -> Iterator[tuple[object, object]]:
        while True:
            yield rows, rows[:, :1]

    def step_us(callbacks: list[object]) -> float:
        began_ns = time.perf_counter_ns()
        model.fit(batches(), steps_per_epoch=500, epochs=1, verbose=0, callbacks=callbacks)
        return (time.perf_counter_ns() - began_ns) / 500 / 1e3

    step_us([])
    bare, tagged = [], []
    for _ in range(_REPEATS):
        bare.append(step_us([]))
        tagged.append(step_us([PhaseTagger()]))
    print(f"  Keras step on JAX, bare      {statistics.median(bare):8.0f} us")
    print(f"  the same with PhaseTagger    {statistics.median(tagged):8.0f} us")


if __name__ == "__main__":
    raise SystemExit(main())
