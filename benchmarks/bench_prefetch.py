"""How much shorter is the gap between batches with ``prefetch_to_device``?

    .venv-tensorflow/bin/python -m benchmarks.bench_prefetch --json
    .venv-jax/bin/python -m benchmarks.bench_prefetch
    .venv-torch/bin/python -m benchmarks.bench_prefetch

The gap is the wait before each step. It is compared with the same source without prefetch, in turns
in the same run; the goal is half its gap where the source is no slower than the step. The excess of
a slower source over the step cannot be hidden, and is printed next to it.

Without a GPU, TensorFlow uses a second logical device instead, and torch copies no batch: for
copies from pinned memory see ``tests/gpu/test_prefetch_on_boards.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

_BATCHES = 25
_ROUNDS = 3
_GOAL = 0.5
_CASES_MS = ((20.0, 20.0), (10.0, 30.0), (5.0, 6.0), (30.0, 10.0))
"""The durations of a batch and a step."""

Make = Callable[[Callable[[], Iterator[Any]], bool], Any]
"""Makes the data of a loop, prefetched or not, from a function that returns batches."""


def main() -> int:
    """Print a table; return 1 if a gap is longer than the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="also print the figures as JSON")
    args = parser.parse_args()
    found = [name for name in _MAKERS if find_spec(name)]
    if not found:
        print("  none of TensorFlow, JAX and torch is installed: nothing was measured")
        return 0
    name, make = found[0], _MAKERS[found[0]]()
    rows = [_measured(name, make, *case) for case in _CASES_MS]
    print("             batch ms  step ms  gap ms: without      with   ratio   cannot be hidden")
    for row in rows:
        print(
            f"  {row['framework']:10} {row['source_ms']:8.0f} {row['step_ms']:8.0f}"
            f" {row['gap_without_ms']:16.2f} {row['gap_with_ms']:9.2f} {row['ratio']:7.2f}"
            f" {row['excess_ms']:18.0f}"
        )
    if args.json:
        print(json.dumps(rows))
    return int(any(row["ratio"] > _GOAL for row in rows if row["excess_ms"] == 0))


def _measured(name: str, make: Make, source_ms: float, step_ms: float) -> dict[str, Any]:
    def batches() -> Iterator[Any]:
        import numpy as np

        for number in range(_BATCHES):
            time.sleep(source_ms / 1000)
            yield np.full((64, 64), number, "float32")

    gaps_ms: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_ROUNDS):
        for prefetches, gaps in gaps_ms.items():
            gaps += _gaps_ms(make(batches, prefetches), step_ms)
    without, with_it = median(gaps_ms[False]), median(gaps_ms[True])
    return {
        "framework": name,
        "source_ms": source_ms,
        "step_ms": step_ms,
        "gap_without_ms": without,
        "gap_with_ms": with_it,
        "ratio": with_it / without,
        "excess_ms": max(0.0, source_ms - step_ms),
    }


def _gaps_ms(data: Any, step_ms: float) -> list[float]:  # noqa: ANN401
    """The wait before each batch but the first two, which fill the queue."""
    gaps_ms = []
    batches = iter(data)
    for _ in range(_BATCHES):
        began_ns = time.monotonic_ns()
        next(batches)
        gaps_ms.append((time.monotonic_ns() - began_ns) / 1e6)
        time.sleep(step_ms / 1000)
    return gaps_ms[2:]


def _on_tensorflow() -> Make:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    from trainer_hooks.prefetch import prefetch_to_device

    device = "GPU:0"
    if not tf.config.list_physical_devices("GPU"):
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        device = "CPU:1"

    def make(batches: Callable[[], Iterator[Any]], prefetches: bool) -> Any:  # noqa: ANN401
        data = tf.data.Dataset.from_generator(
            batches, output_signature=tf.TensorSpec((64, 64), tf.float32)
        )
        options = tf.data.Options()  # keep TensorFlow from prefetching in both cases
        options.autotune.enabled = False
        options.experimental_optimization.inject_prefetch = False
        data = data.with_options(options)
        return prefetch_to_device(data, 2, device) if prefetches else data

    return make


def _on_jax() -> Make:
    import jax

    from trainer_hooks.prefetch import prefetch_to_device

    def make(batches: Callable[[], Iterator[Any]], prefetches: bool) -> Any:  # noqa: ANN401
        return prefetch_to_device(batches()) if prefetches else map(jax.device_put, batches())

    return make


def _on_torch() -> Make:
    import torch

    from trainer_hooks.prefetch import prefetch_to_device

    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")

    def make(batches: Callable[[], Iterator[Any]], prefetches: bool) -> Any:  # noqa: ANN401
        tensors = map(torch.from_numpy, batches())
        if prefetches:
            return prefetch_to_device(tensors, 2, device)
        return (tensor.to(device) for tensor in tensors)

    return make


_MAKERS: dict[str, Callable[[], Make]] = {
    "tensorflow": _on_tensorflow,
    "jax": _on_jax,
    "torch": _on_torch,
}


if __name__ == "__main__":
    raise SystemExit(main())
