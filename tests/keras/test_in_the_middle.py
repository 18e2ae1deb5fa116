"""What is done in the middle of a ``fit`` changes nothing of it, and of no hook that is in it.

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

from gpumon.core.ring.events import RingKind
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import b, g, keras, w
from trainer_hooks.batches import fixed_batches
from trainer_hooks.prefetch import prefetch_to_device

pytestmark = pytest.mark.usefixtures("each_backend")

SIZE, STEPS, EPOCHS, CHOSEN = 4, 5, 2, 2


class Training:
    """One ``fit`` in whose middle something is done, with a hook or without."""

    def __init__(self, hook: str | None, folder: Path) -> None:
        self.hook, self.folder = hook, folder
        self.model, self.other = w.a_model(), w.a_model()
        self.callbacks = [HOOKS[hook]()] if hook in HOOKS else []
        self.data = DATA[hook or "none"](STEPS)
        self.aside = DATA[hook or "none"](STEPS + 3)
        self.losses: list[float] = []
        self.told: list[Any] = []
        self.acts: list[Any] = []
        self.waits: list[float] = []

    def fit(self, *acts: Any, model: Any = None, epochs: int = EPOCHS) -> None:
        self.acts += acts
        trains = self.model if model is None else model
        data = self.data if trains is self.model else self.aside
        history = trains.fit(
            data, epochs=epochs, verbose=0, shuffle=False, callbacks=[*self.callbacks, *acts]
        )
        self.losses += history.history["loss"]
        self.waits += history.history.get("input_wait_ratio", [])

    def left(self) -> list[Any]:
        weights = [*self.model.get_weights(), *self.other.get_weights()]
        return [*weights, np.array(self.losses), *map(np.array, self.told)]


def batches(steps: int) -> Any:
    return w.Source(SIZE * steps, SIZE)


DATA: dict[str, Callable[[int], Any]] = {
    "none": batches,
    "PhaseTagger": batches,
    "NaNGuard": batches,
    "fixed_batches": lambda steps: fixed_batches(batches(steps), SIZE, tail="pad"),
    "prefetch_to_device": lambda steps: prefetch_to_device(batches(steps)),
}
HOOKS: dict[str | None, Callable[[], Any]] = {
    "PhaseTagger": lambda: b.tagger(gpus=["GPU-0"], logs=True),
    "NaNGuard": lambda: g.NaNGuard(every=1, on_found="raise"),
}


def acting(act: Callable[[], Any], method: str = "on_train_batch_end", times: int = 1) -> Any:
    """A callback that does it at the chosen batch, or at the end of an epoch."""

    def do(number: int, logs: Any = None) -> None:
        if callback.left and (number == CHOSEN or method == "on_epoch_end"):
            callback.left -= 1
            assert callback.model  # on JAX, asking for it brings the weights back to it
            act()

    callback = keras.callbacks.LambdaCallback(**{method: do})
    callback.left = times
    return callback


def evaluates(training: Training) -> None:
    def act() -> None:
        training.told.append(training.model.evaluate(*w.rows_and_targets(8), verbose=0))

    training.fit(acting(act, times=EPOCHS))


def evaluates_with_the_hook(training: Training) -> None:
    """Another model, with the callbacks of the training."""

    def act() -> None:
        hooks = training.callbacks
        told = training.other.evaluate(*w.rows_and_targets(8), verbose=0, callbacks=hooks)
        training.told.append(told)

    training.fit(acting(act, times=EPOCHS))


def saves(training: Training) -> None:
    def act() -> None:
        training.model.save(training.folder / "middle.keras")
        loaded = keras.models.load_model(training.folder / "middle.keras")
        training.told += loaded.get_weights()

    training.fit(acting(act, times=EPOCHS))


def fits_again(method: str, **which: Any) -> Callable[[Training], None]:
    """The same model, or the other, with the same callbacks, in a callback."""

    def run(training: Training) -> None:
        model = training.other if which.get("other") else training.model
        training.fit(acting(lambda: training.fit(model=model, epochs=1), method))

    return run


def fits_again_and_fails(training: Training) -> None:
    def fail() -> None:
        raise ValueError("of a callback inside")

    def act() -> None:
        with pytest.raises(ValueError, match="of a callback inside"):
            training.fit(acting(fail), model=training.other)

    training.fit(acting(act))


def fails(training: Training) -> None:
    def fail() -> None:
        raise ValueError("of a callback")

    with pytest.raises(ValueError, match="of a callback"):
        training.fit(acting(fail))
    training.fit()


def runs_out_of_input(training: Training) -> None:
    def broken() -> Any:
        for _ in range(CHOSEN + 1):
            yield w.rows_and_targets(SIZE)
        raise OSError("the file server is gone")

    make = {"fixed_batches": lambda data: fixed_batches(data, SIZE, tail="pad")}
    make["prefetch_to_device"] = prefetch_to_device
    whole, data = training.data, broken()
    training.data = make[training.hook](data) if training.hook in make else data
    with pytest.raises(Exception, match="the file server is gone"):
        training.fit()
    try:
        training.model.get_weights()
    except TypeError:
        pytest.skip("where its input fails on JAX, this Keras leaves a model without weights")
    training.data = whole
    training.fit()


def acts_inside_a_step(training: Training) -> None:
    model, other, left = training.model, training.other, [CHOSEN]
    if keras.backend.backend() == "jax":
        pytest.skip("JAX compiles a step of the training: nothing is evaluated or saved in it")
    step = model.train_step

    def train_step(data: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            other.save(training.folder / "middle.keras")
            if keras.backend.backend() != "tensorflow":  # which refuses it
                training.told.append(other.evaluate(*w.rows_and_targets(8), verbose=0))
        return step(data)

    model.train_step = train_step
    training.fit()


ACTS: dict[str, Callable[[Training], None]] = {
    "an evaluation": evaluates,
    "an evaluation and a save inside a training step": acts_inside_a_step,
    "an evaluation of another model with the same callbacks": evaluates_with_the_hook,
    "a save": saves,
    "a fit of the same model at an epoch's end": fits_again("on_epoch_end"),
    "a fit of the same model at a batch's end": fits_again("on_train_batch_end"),
    "a fit of another model at a batch's end": fits_again("on_train_batch_end", other=True),
    "a fit of another model that fails": fits_again_and_fails,
    "an exception of a callback, and a second fit": fails,
    "an exception of the input, and a second fit": runs_out_of_input,
}


@cache
def without(act: str, folder: Path) -> list[Any]:
    training = Training(None, folder)
    ACTS[act](training)
    return training.left()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("hook", [hook for hook in DATA if hook != "none"])
def test_a_training_is_the_one_it_is_without_the_hook(
    hook: str, act: str, own_runtime_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    daemon = FakeDaemon(own_runtime_folder)
    daemon.counts(observed_s=10, busy_s=5, in_use_s=8, starved_s=1)
    training = Training(hook, own_runtime_folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*there is no GPU.*")
        ACTS[act](training)

    assert [each.left for each in training.acts] == [0] * len(training.acts)
    bare = without(act, tmp_path_factory.getbasetemp())
    for one, other in zip(training.left(), bare, strict=True):
        np.testing.assert_array_equal(one, other)

    if hook == "PhaseTagger":
        inside = STEPS if "a fit of the same model" in act else 0
        assert_is_tagged(training, int(training.model.optimizer.iterations) - inside)


def assert_is_tagged(training: Training, steps: int) -> None:
    """The steps of its own fits are counted, each epoch is told its wait, and nothing is left."""
    done = [event.value for event in b.records() if event.kind is RingKind.STEP]
    assert done[-1] == steps >= EPOCHS * STEPS
    assert len(training.waits) == EPOCHS
    assert all(0 <= wait <= 1 for wait in training.waits)
    assert b.phase_ns()["train_step"] > 0
    assert b.records()[-1].phase.value not in ("train_step", "input_wait")
