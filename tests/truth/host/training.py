"""A training run whose input is really slow, on a simulated GPU whose work is known.

    python -m tests.truth.host.training --condition latency --loader "1 process" --spans FILE ...

It is tagged as users tag theirs. It ends with one line of JSON; ``cells`` starts it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tests.truth.host.conditions import CONDITIONS, CORES, LOADERS, Loader
from tests.truth.host.loaders import BATCHES, ENDLESS, Make
from tests.truth.host.work import WORKS, Stage, compute, join_cgroup, run_parser
from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans, through_jax

_LAUNCHES: Final = 3
_LAUNCH_S: Final = 0.005


class SimulatedGpu:
    """Works for 15 ms a step, in three launches; the training thread waits for each."""

    def __init__(self, spans: BusySpans, seconds: float) -> None:
        self._spans, self._seconds = spans, seconds

    @property
    def is_over(self) -> bool:
        """Whether the run has lasted long enough since its first step."""
        spans_ns = self._spans.spans_ns
        return bool(spans_ns) and spans_ns[-1][1] - spans_ns[0][0] > self._seconds * 1e9

    @property
    def idle_s(self) -> float:
        """How long it was idle between its first and its last work."""
        spans_ns = self._spans.spans_ns
        return (spans_ns[-1][1] - spans_ns[0][0] - self._spans.busy_ns) / 1e9

    def step(self) -> None:
        """Do the work of one step."""
        for _ in range(_LAUNCHES):
            self._spans.sleep(_LAUNCH_S)


def train(gpu: SimulatedGpu, loader: Loader, make: Make) -> None:
    """A custom loop."""
    compute_once, train_step = _compute_on(loader.framework, gpu.step), phase("train_step")
    for _ in timed(BATCHES[loader.kind](make, loader.workers)):
        with train_step:
            compute_once()
        step(1)
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


def _compute_on(framework: str, work: Callable[[], None]) -> Callable[[], object]:
    """The GPU's work, within a step of the framework if there is one."""
    if framework == "jax":
        return _compiled_by_jax(work)
    return _optimized_by_torch(work) if framework == "torch" else work


def _compiled_by_jax(work: Callable[[], None]) -> Callable[[], object]:
    import jax
    import jax.numpy as jnp

    compiled = jax.jit(partial(through_jax, work))
    rows = jnp.zeros(1)
    return lambda: compiled(rows).block_until_ready()


def _optimized_by_torch(work: Callable[[], None]) -> Callable[[], object]:
    import torch

    class Device(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
        @staticmethod
        def forward(ctx: Any, rows: Any) -> Any:
            work()
            return rows.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    class Model(torch.nn.Linear):  # type: ignore[misc]
        def forward(self, rows: Any) -> Any:
            return Device.apply(super().forward(rows))

    torch.set_num_threads(1)
    model, rows = Model(8, 1), torch.ones(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def once() -> None:
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()

    return once


def _burn(stage: Stage) -> None:
    while True:
        compute(stage, 1.0, 0)


def main() -> None:
    """Train once."""
    parser = run_parser(__doc__)
    parser.add_argument("--condition", choices=CONDITIONS, required=True)
    parser.add_argument("--loader", choices=LOADERS, required=True)
    args = parser.parse_args()
    condition, loader = CONDITIONS[args.condition], LOADERS[args.loader]
    stage = Stage(args.file, args.port)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    join_cgroup(args.cgroup)
    for _ in range(condition.burners):
        threading.Thread(target=_burn, args=(stage,), daemon=True).start()
    with BusySpans(args.spans) as spans:
        gpu = SimulatedGpu(spans, args.seconds)
        make = partial(WORKS[condition.work], stage, loader.batch_s)
        if loader.kind == "PyDataset":
            fit(gpu, loader, make)
        else:
            train(gpu, loader, make)
        print(json.dumps({"idle_s": gpu.idle_s}), flush=True)


if __name__ == "__main__":
    main()
