"""A training that something really holds up, on a simulated GPU whose work is known.

    python -m tests.truth.host.training --condition latency --loader "1 process" --spans FILE ...

It is tagged as users tag theirs. At its end it prints one line of JSON; ``cells`` starts it.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.truth.host.conditions import CONDITIONS, CORES, LOADERS, Loader
from tests.truth.host.loaders import BATCHES, ENDLESS, Make
from tests.truth.host.work import WORKS, Stage, compute
from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans, through_jax

_LAUNCHES: Final = 3
_LAUNCH_NS: Final = 5_000_000


class SimulatedGpu:
    """Works for 15 ms a step, in three launches, each of which the training thread waits for.

    A launch lasts as long as it is meant to, whenever that thread comes round to hearing of it:
    a device goes on by itself.
    """

    def __init__(self, spans: BusySpans, seconds: float) -> None:
        self._spans, self._seconds = spans, seconds

    @property
    def is_over(self) -> bool:
        """Whether the training has lasted long enough since its first step."""
        spans_ns = self._spans.spans_ns
        return bool(spans_ns) and spans_ns[-1][1] - spans_ns[0][0] > self._seconds * 1e9

    @property
    def idle_s(self) -> float:
        """How long it stood still between its first and its last work."""
        spans_ns = self._spans.spans_ns
        return (spans_ns[-1][1] - spans_ns[0][0] - self._spans.busy_ns) / 1e9

    def step(self) -> None:
        """Do the work of one step."""
        for _ in range(_LAUNCHES):
            start_ns = time.monotonic_ns()
            time.sleep(_LAUNCH_NS / 1e9)
            self._spans.note(start_ns, start_ns + _LAUNCH_NS)


def train(gpu: SimulatedGpu, loader: Loader, make: Make) -> None:
    """A loop of one's own."""
    work = _compiled_by_jax(gpu.step) if loader.framework == "jax" else gpu.step
    for _ in timed(BATCHES[loader.kind](make, loader.workers)):
        with phase("train_step"):
            work()
        step()
        if gpu.is_over:
            break


def fit(gpu: SimulatedGpu, loader: Loader, make: Make) -> None:
    """Keras' own loop, over a ``PyDataset``."""
    import keras
    import numpy as np

    from tests.keras.builders_keras import BATCH, FEATURES, SleepingCompute, small_model
    from trainer_hooks import PhaseTagger

    class Device(SleepingCompute):
        def _sleep(self, values: Any) -> Any:
            gpu.step()
            return np.asarray(values)

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
        def __len__(self) -> int:
            return ENDLESS

        def __getitem__(self, number: int) -> Any:
            make(number)
            return np.ones((BATCH, FEATURES), "float32"), np.ones((BATCH, 1), "float32")

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            self.model.stop_training = gpu.is_over

    small_model(Device(0.0), jit_compile=False).fit(
        Batches(workers=loader.workers, max_queue_size=2),
        verbose=0,
        callbacks=[PhaseTagger(), Stop()],
    )


def _compiled_by_jax(work: Callable[[], None]) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(partial(through_jax, work))
    rows = jnp.zeros(1)
    return lambda: compiled(rows).block_until_ready()


def _burn(stage: Stage) -> None:
    while True:
        compute(stage, 1.0, 0)


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--condition", choices=CONDITIONS, required=True)
    parser.add_argument("--loader", choices=LOADERS, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--spans", type=Path, required=True, help="where busy spans go")
    parser.add_argument("--file", type=Path, required=True, help="to be read")
    parser.add_argument("--port", type=int, required=True, help="of the slow server")
    parser.add_argument("--cgroup", type=Path, help="to train in")
    args = parser.parse_args()
    condition, loader = CONDITIONS[args.condition], LOADERS[args.loader]
    stage = Stage(args.file, args.port)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    if args.cgroup:
        (args.cgroup / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    for _ in range(condition.burners):
        threading.Thread(target=_burn, args=(stage,), daemon=True).start()
    with BusySpans(args.spans) as spans:
        gpu = SimulatedGpu(spans, args.seconds)
        make = partial(WORKS[condition.work], stage, loader.batch_s)
        (fit if loader.kind == "PyDataset" else train)(gpu, loader, make)
        print(json.dumps({"idle_s": gpu.idle_s}), flush=True)


if __name__ == "__main__":
    main()
