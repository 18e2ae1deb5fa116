"""Keras runs whose every phase is measured below the hooks, compared with the report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.keras.builders_keras import BATCH, FEATURES, Edges, Notes, measured_model, phase_ns
from tests.truth.numbered_batches import Batches, NumberedCompute, Span, source_of
from trainer_hooks.examples import keras_parts as parts

NS = 1e9
POINTS = 0.02
"""Allowed error of a phase, as a share of the wall time."""
INPUT_SHARE, INPUT_S_A_STEP = 0.10, 0.001
"""Of the true wait for input, or so much for each step, whichever is larger."""
UNTAGGED = 0.01
"""Allowed share of ``other``."""

_STEPS_AND_KERAS = ("train_step", "device_sync", "host_to_device", "between_epochs", "start_up")


class Row(NamedTuple):
    """One phase of one training run, in seconds."""

    phase: str
    truth_s: float
    reported_s: float
    bound_s: float
    without_core_s: float
    """Time in which the run's threads were ready but had no core. No clock shows whose that is,
    so it is allowed, too."""

    @property
    def is_met(self) -> bool:
        return abs(self.reported_s - self.truth_s) <= self.bound_s + self.without_core_s


class Outcome(NamedTuple):
    """One training run: its phases, its steps and how long ``fit`` ran."""

    rows: tuple[Row, ...]
    steps_made: int
    recorded_steps: int
    wall_s: float
    slept_s: float
    """Sleeps of the cause, hidden or not."""

    def row(self, phase: str) -> Row:
        return next(row for row in self.rows if row.phase == phase)

    @property
    def missed(self) -> list[Row]:
        return [row for row in self.rows if not row.is_met]


class TruthfulEdges(Edges):
    """Also records what was reported before, and how long threads were ready without a core."""

    def on_train_begin(self, logs: object = None) -> None:
        super().on_train_begin(logs)
        self.reported_at_begin_ns = phase_ns()
        self._delayed_ns = _delay_ns()

    def on_train_end(self, logs: object = None) -> None:
        super().on_train_end(logs)
        self.without_core_s = max(0, _delay_ns() - self._delayed_ns) / NS


def _delay_ns() -> int:
    """How long the threads of this process have been ready without a core."""
    delay_ns = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(
            OSError, ValueError, IndexError
        ):  # it ended, or the kernel does not count
            delay_ns += int(thread.read_text(encoding="ascii").split()[1])
    return delay_ns


class TimedCheckpoint(parts.SlowCheckpoint):
    """Also records the writing."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        began_ns = time.monotonic_ns()
        super().on_epoch_end(epoch, logs)
        self._sleeps.note("written", began_ns, time.monotonic_ns())


class Fit(NamedTuple):
    """A training run.

    Attributes:
        cause: What slows it, one of ``keras_parts.CAUSES``.
        slow_s: How long, each time: a batch, a checkpoint, a validation batch, a callback,
            the trace.
        source: Kind of data set.
    """

    cause: str
    slow_s: float
    source: str = "PyDataset"
    steps: int = 40
    epochs: int = 2
    compute_s: float = 0.010


def train(fit: Fit, folder: Path, *more: Any) -> Outcome:
    """Train, tagged by ``PhaseTagger``; return the truth and what was reported.

    Args:
        fit: What to train.
        folder: For checkpoints; must exist.
        more: Callbacks before the tagger.
    """
    from trainer_hooks import PhaseTagger

    notes, sleeps, edges = Notes(), parts.Sleeps(), TruthfulEdges()
    trace, compute = parts.SlowToTrace(sleeps), NumberedCompute(fit.compute_s)
    compiles = fit.cause == parts.COMPILE
    model = measured_model(notes, *([trace] if compiles else []), compute)
    batches = Batches(fit.slow_s if fit.cause == parts.INPUT else 0.0)
    validation = _rows_and_sums(5) if fit.cause == parts.VALIDATION else None
    # Compiles what a run needs besides its own step, such as the sums of an epoch.
    _warm_up(measured_model(Notes(), NumberedCompute(0.0)) if compiles else model, fit, validation)
    notes.spans_ns.clear()
    compute.taken.clear()
    arm = [trace.armed_by(fit.slow_s)] if compiles else []
    with batches.noting_loads():
        model.fit(
            source_of(fit.source, batches, fit.steps),
            epochs=fit.epochs,
            steps_per_epoch=fit.steps,
            validation_data=validation,
            validation_batch_size=BATCH,
            verbose=0,
            callbacks=[*more, PhaseTagger(), edges, *arm, *_callbacks(fit, sleeps, folder)],
        )
    return _outcome(fit, sleeps, edges, batches, Steps(notes, compute, edges))


def _callbacks(fit: Fit, sleeps: parts.Sleeps, folder: Path) -> Sequence[Any]:
    if fit.cause == parts.CHECKPOINT:
        return [TimedCheckpoint(folder / "latest.weights.h5", fit.slow_s, sleeps)]
    return parts.slow_callbacks(fit.cause, fit.slow_s, sleeps, folder)


def _warm_up(model: Any, fit: Fit, validation: Any) -> None:
    """Trace and compile before, in an untagged run."""
    model.fit(
        source_of(fit.source, Batches(0.0), 2),
        steps_per_epoch=2,
        validation_data=validation,
        validation_batch_size=BATCH,
        verbose=0,
    )


def _rows_and_sums(batches: int) -> tuple[Any, Any]:
    rows = np.random.default_rng(3).normal(size=(batches * BATCH, FEATURES)).astype("float32")
    return rows, rows.sum(1, keepdims=True)


class Steps:
    """What a run computed, apart from its validations."""

    def __init__(self, notes: Notes, compute: NumberedCompute, edges: Edges) -> None:
        validations = edges.validations_ns
        self.trained = [one for one in notes.spans_ns if not _is_within(one[0], validations)]
        self.validated = [one for one in notes.spans_ns if _is_within(one[0], validations)]
        self.taken = [one for one in compute.taken if not _is_within(one[0], validations)]


def _is_within(at_ns: int, windows_ns: Sequence[Span]) -> bool:
    return any(began <= at_ns < ended for began, ended in windows_ns)


def _outcome(
    fit: Fit, sleeps: parts.Sleeps, edges: TruthfulEdges, batches: Batches, steps: Steps
) -> Outcome:
    from trainer_hooks.ring.process_ring import process_ring

    pen = process_ring().writer
    assert pen is not None
    slept = sleeps.seconds(edges.began_ns, edges.ended_ns)
    truth = {
        "input_wait": batches.waited_s(edges, steps.taken, steps.trained),
        "checkpoint": slept.get("written", 0.0),
        "validation": _validated_s(steps, edges, slept.get(parts.VALIDATION, 0.0)),
        "callbacks": slept.get(parts.CALLBACK, 0.0),
        "compile": _compiled_s(steps, edges, batches) if fit.cause == parts.COMPILE else 0.0,
    }
    made_s = sum(one.end_ns - one.start_ns for one in batches.made if one is not None) / NS
    return Outcome(
        rows=_rows(truth, edges, fit.steps * fit.epochs),
        steps_made=len(steps.trained),
        recorded_steps=pen.steps,
        wall_s=edges.wall_ns / NS,
        slept_s=made_s if fit.cause == parts.INPUT else slept.get(fit.cause, 0.0),
    )


def _rows(truth: dict[str, float], edges: TruthfulEdges, steps: int) -> tuple[Row, ...]:
    """The rest of the wall time are the steps, and Keras itself."""
    reported = {
        phase: (ns - edges.reported_at_begin_ns[phase]) / NS for phase, ns in phase_ns().items()
    }
    wall_s, input_s = edges.wall_ns / NS, truth["input_wait"]
    bounds = dict.fromkeys(truth, POINTS * wall_s)
    bounds["input_wait"] = max(INPUT_SHARE * input_s, INPUT_S_A_STEP * steps)
    bounds["train_step"], bounds["other"] = POINTS * wall_s, UNTAGGED * wall_s
    reported["train_step"] = sum(reported[phase] for phase in _STEPS_AND_KERAS)
    truth = {**truth, "train_step": wall_s - sum(truth.values()), "other": 0.0}
    return tuple(
        Row(phase, truth[phase], reported[phase], bounds[phase], edges.without_core_s)
        for phase in truth
    )


def _validated_s(steps: Steps, edges: Edges, slept_s: float) -> float:
    """From begin to end of each validation, which contains its sleeps and its compute."""
    lasted_s = sum(ended - began for began, ended in edges.validations_ns) / NS
    assert lasted_s >= slept_s + sum(end - start for start, end in steps.validated) / NS
    return lasted_s


def _compiled_s(steps: Steps, edges: Edges, batches: Batches) -> float:
    """From the begin of the run to its first compute, without the input."""
    first_ns = steps.trained[0][0]
    made_ns = sum(
        one.end_ns - one.start_ns
        for one in batches.made
        if one is not None and edges.began_ns <= one.start_ns < first_ns
    )
    return (first_ns - edges.began_ns - made_ns) / NS
