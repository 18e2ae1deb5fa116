"""A run on JAX whose device works while the host waits for the next batch.

JAX completes a program with host callbacks before it continues. So the compute is real, and a
thread of our own waits for the end of each step.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras

from tests.daemon import FollowingDaemon
from tests.keras.builders_keras import FEATURES
from tests.truth.keras_truth import Outcome, Row
from tests.truth.numbered_batches import Batches, Store
from trainer_hooks import PhaseTagger
from trainer_hooks.examples.busy_spans import BusySpans

_STEPS = 250
_SIDE = 128


class Truth(NamedTuple):
    """A run, in seconds: what the device did, and how long the host waited."""

    wall_s: float
    busy_s: float
    idle_s: float
    host_waited_s: float


class Ends(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Record when ``fit`` began and ended. It does not open the ring: closing it would release the
    lock that shows the daemon that this process lives."""

    async_safe = True

    def on_train_begin(self, logs: object = None) -> None:
        self.began_ns = time.monotonic_ns()

    def on_train_end(self, logs: object = None) -> None:
        self.ended_ns = time.monotonic_ns()


class Rounds(keras.layers.Layer):  # type: ignore[misc]
    """Matrix products without a gradient, on one core."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._rounds = rounds

    def call(self, rows: Any) -> Any:
        return rows + 0 * jax.lax.stop_gradient(_work(rows, self._rounds))


def _work(rows: Any, rounds: int) -> Any:
    start = jnp.full((_SIDE, _SIDE), 1e-3) * jnp.ravel(rows)[0]
    return jax.lax.fori_loop(0, rounds, lambda _, m: jnp.tanh(m @ start), start).sum()


class WatchedModel(keras.Sequential):  # type: ignore[misc]
    """Passes the logs of each step to a thread that waits for the device."""

    def __init__(self, layers: list[Any], spans: BusySpans) -> None:
        super().__init__(layers)
        self._handed: SimpleQueue[tuple[int, Any] | None] = SimpleQueue()
        self._watcher = threading.Thread(target=self._watch, args=(spans,), daemon=True)
        self._watcher.start()

    def _make_function(self, step_function: Any, **named: Any) -> Any:
        """Below any wrapper of a hook."""

        def noted(state: Any, data: Any) -> Any:
            start_ns = time.monotonic_ns()
            logs, state = step_function(state, data)
            self._handed.put((start_ns, logs))
            return logs, state

        return super()._make_function(noted, **named)

    def finish(self) -> None:
        """Wait until the device is done."""
        self._handed.put(None)
        self._watcher.join(30)

    def _watch(self, spans: BusySpans) -> None:
        free_ns = 0
        for start_ns, logs in iter(self._handed.get, None):
            jax.block_until_ready(logs)
            done_ns = time.monotonic_ns()
            spans.note(max(start_ns, free_ns), done_ns)
            free_ns = done_ns


def train_asynchronously(path: Path, *, step_s: float, input_s: float) -> Truth:
    """Train with a wait before each batch.

    Args:
        path: Where the busy spans go, for a daemon that follows them.
        step_s: Compute of a step, seconds.
        input_s: Sleep of the source before each batch, seconds.
    """
    ends, rounds, batches = Ends(), _rounds_for(step_s), Batches(input_s)
    with BusySpans(path) as spans:
        layers = [keras.Input((FEATURES,)), Rounds(rounds), keras.layers.Dense(1)]
        model = WatchedModel(layers, spans)
        model.compile("sgd", "mse")
        model.fit(Store(Batches(0.0), 2, workers=1), verbose=0)
        store = Store(batches, _STEPS, workers=1)
        model.fit(store, verbose=0, callbacks=[PhaseTagger(), ends])
        model.finish()
    trained = [span for span in spans.spans_ns if span[0] >= ends.began_ns]
    busy_ns = sum(end - start for start, end in trained)
    return Truth(
        wall_s=(ends.ended_ns - ends.began_ns) / 1e9,
        busy_s=spans.busy_ns / 1e9,
        idle_s=(trained[-1][1] - ends.began_ns - busy_ns) / 1e9,
        host_waited_s=sum(
            one.end_ns - one.start_ns
            for one in batches.made
            if one is not None and ends.began_ns <= one.start_ns < ends.ended_ns
        )
        / 1e9,
    )


def outcome_under_a_daemon(folder: Path) -> Outcome:
    """Train under a daemon; its loss to input, compared with the device's idle time."""
    with FollowingDaemon(folder) as daemon:
        os.environ["GPUMON_RUNTIME_DIR"] = str(daemon.runtime_dir)
        os.environ["GPUMON_GPUS"] = "0"
        truth = train_asynchronously(daemon.spans, step_s=0.016, input_s=0.015)
        report = daemon.settled_report()
    lost_s = report["gpus"][0]["idle_by_cause"].get("input_wait", 0.0)
    bound_s = max(0.10 * truth.idle_s, 0.001 * _STEPS)
    return Outcome(
        rows=(Row("input_wait", truth.idle_s, lost_s, bound_s, 0.0),),
        steps_made=_STEPS,
        recorded_steps=report["runs"][0]["steps"],
        wall_s=truth.wall_s,
        slept_s=truth.host_waited_s,
    )


def _rounds_for(step_s: float) -> int:
    rows, trial = jnp.ones((1, 1)), 200
    work = jax.jit(_work, static_argnums=1)
    work(rows, trial).block_until_ready()
    lasted_s = []
    for _ in range(5):
        started_s = time.monotonic()
        work(rows, trial).block_until_ready()
        lasted_s.append(time.monotonic() - started_s)
    return max(1, round(trial * step_s / min(lasted_s)))
