"""What happens in the middle of a ``fit`` changes neither its result nor any hook in it.

Every act is done once with each hook and once without: the losses and the weights are the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumon.core.ring_format.events import RingKind
from tests.keras import acts_in_the_middle as acts
from tests.keras.acts_in_the_middle import CHOSEN, EPOCHS, Training
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import batch_builders, builders, keras, nan_guard
from tests.needs import in_make_truth
from trainer_hooks.batches import fixed_batches
from trainer_hooks.prefetch import prefetch_to_device

pytestmark = pytest.mark.usefixtures("each_backend")

SIZE, STEPS = 4, 5

HOOKS: dict[str, Callable[[], Any]] = {
    "PhaseTagger": lambda: builders.tagger(gpus=["GPU-0"], logs=True),
    "NaNGuard": lambda: nan_guard.NaNGuard(every=1, on_found="raise"),
}
"""Callbacks."""
MADE: dict[str, Callable[[Any], Any]] = {
    "fixed_batches": lambda data: fixed_batches(data, SIZE, tail="pad"),
    "prefetch_to_device": prefetch_to_device,
}
"""What makes its data of others."""


def new_training(hook: str, folder: Path) -> Training:
    of = MADE.get(hook, lambda data: data)
    data, other_data = (
        {"x": of(batch_builders.Source(SIZE * steps, SIZE))} for steps in (STEPS, STEPS + 3)
    )
    x, y = batch_builders.rows_and_targets(8)
    hooks = [HOOKS[hook]()] if hook in HOOKS else []
    models = batch_builders.a_model(), batch_builders.a_model()
    return Training(*models, folder, data, other_data, {"x": x, "y": y}, hooks, of)


def runs_out_of_input(training: Training) -> None:
    def broken() -> Any:
        for _ in range(CHOSEN + 1):
            yield batch_builders.rows_and_targets(SIZE)
        raise OSError("server gone")

    assert training.of is not None
    whole, training.data = training.data, {"x": training.of(broken())}
    with pytest.raises(Exception, match="server gone"):
        training.fit()
    try:
        training.model.get_weights()
    except TypeError:
        pytest.skip("where its input fails on JAX, this Keras leaves a model without weights")
    training.data = whole
    training.fit()


def acts_inside_a_step(training: Training) -> None:
    outcome = [CHOSEN]
    if keras.backend.backend() == "jax":
        pytest.skip("JAX compiles a step of the training: nothing is evaluated or saved in it")
    step = training.model.train_step

    def train_step(data: Any) -> Any:
        outcome[0] -= 1
        if outcome[0] == 0:
            training.other.save(training.folder / "middle.keras")
            if keras.backend.backend() != "tensorflow":  # which refuses it
                training.evaluate(training.other)
        return step(data)

    training.model.train_step = train_step
    training.fit()


ACTS: dict[str, Callable[[Training], None]] = {
    **acts.ACTS,
    "an evaluation and a save inside a training step": acts_inside_a_step,
    "an exception of the input, and a second fit": runs_out_of_input,
}


@cache
def left_without(act: str, folder: Path) -> list[Any]:
    training = new_training("none", folder)
    ACTS[act](training)
    return training.outcome()


IN_CI = {
    "PhaseTagger": tuple(act for act in ACTS if act != "a save"),
    "NaNGuard": ("a fit of the same model at a batch's end", "a fit of another model that fails"),
    "fixed_batches": ("an exception of the input, and a second fit",),
    "prefetch_to_device": ("an exception of the input, and a second fit", "a save"),
}


@pytest.mark.parametrize(
    ("hook", "act"),
    [
        pytest.param(hook, act, marks=[] if act in IN_CI[hook] else in_make_truth)
        for hook in (*HOOKS, *MADE)
        for act in ACTS
    ],
)
def test_a_run_is_the_same_as_without_the_hook(
    hook: str, act: str, own_runtime_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    daemon = FakeDaemon(own_runtime_folder)
    daemon.counts(observed_s=10, busy_s=5, in_use_s=8, starved_s=1)
    training = new_training(hook, own_runtime_folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*there is no GPU.*")
        ACTS[act](training)

    assert [each.remaining for each in training.acts] == [0] * len(training.acts)
    bare = left_without(act, tmp_path_factory.getbasetemp())
    for one, other in zip(training.outcome(), bare, strict=True):
        np.testing.assert_array_equal(one, other)

    if hook == "PhaseTagger":
        inside = STEPS if "a fit of the same model" in act else 0
        assert_is_tagged(training, int(training.model.optimizer.iterations) - inside)


def assert_is_tagged(training: Training, steps: int) -> None:
    """The steps of its own fits are counted, each epoch has its wait, and nothing is left open."""
    assert builders.marks(RingKind.STEP)[-1] == steps >= EPOCHS * STEPS
    assert len(training.waits) == EPOCHS
    assert all(0 <= wait <= 1 for wait in training.waits)
    assert builders.phase_ns()["train_step"] > 0
    assert builders.records()[-1].phase.value not in ("train_step", "input_wait")
