"""How much shorter is the gap between batches with ``prefetch_to_device``?

    .venv-tensorflow/bin/python -m benchmarks.bench_prefetch --json
    .venv-jax/bin/python -m benchmarks.bench_prefetch
    .venv-torch/bin/python -m benchmarks.bench_prefetch

The gap is the wait before each step. The peer is the same source without
prefetch, in turns with it, in the same run; the goal is half its gap where the
source is no slower than the step. What a source slower than that leaves is its
excess over the step, which nothing can hide: it is printed beside.

Without a GPU the second of two logical devices stands for one on TensorFlow, and
no batch is copied on torch: what copies from pinned memory save is asked by
``tests/gpu/test_prefetch_on_boards.py``.
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
"""How long a batch and a step take."""

Make = Callable[[Callable[[], Iterator[Any]], bool], Any]
"""Makes a loop's data of what gives an iterator over batches; prefetched or not."""


def main() -> int:
    """Print a table; 1 if a gap is longer than the goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    args = parser.parse_args()
    found = [name for name in _MAKERS if find_spec(name)]
    if not found:
        print("  none of TensorFlow, JAX and torch is installed here: nothing was measured")
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
    """The wait before each batch but the first two, which fill what is to be ahead."""
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
        options = tf.data.Options()  # or TensorFlow prefetches of itself, in both
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
