"""Acts in the middle of a ``fit`` that must change neither its result nor what hooks record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.keras.later import keras

CHOSEN, EPOCHS = 2, 2


@dataclass
class Training:
    """One ``fit`` with an act in its middle, and its outcome.

    Attributes:
        model: The model that trains.
        other: A second model, which an act may train.
        folder: For files.
        data: The data arguments of ``fit`` for ``model``.
        other_data: The data arguments of ``fit`` for ``other``.
        evaluated: The data arguments of ``evaluate``.
        hooks: Callbacks under test, which must change nothing.
        of: Wraps any data in the data under test, which must change nothing.
        acts: Callbacks that act, with the number of acts ``remaining``.
        waits: The ratio of each epoch that was a wait for input, if a hook recorded it.
    """

    model: Any
    other: Any
    folder: Path
    data: dict[str, Any]
    other_data: dict[str, Any]
    evaluated: dict[str, Any]
    hooks: list[Any]
    of: Callable[[Any], Any] | None = None
    acts: list[Any] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    recorded: list[Any] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def fit(self, *acts: Any, model: Any = None, epochs: int = EPOCHS) -> None:
        self.acts += acts
        trains = self.model if model is None else model
        arguments = {
            "epochs": epochs,
            "verbose": 0,
            "shuffle": False,
            "callbacks": [*self.hooks, *acts],
        }
        data = self.data if trains is self.model else self.other_data
        history = trains.fit(**data, **arguments)
        self.losses += history.history["loss"]
        self.waits += history.history.get("input_wait_ratio", [])

    def evaluate(self, model: Any, *hooks: Any) -> None:
        self.recorded.append(model.evaluate(**self.evaluated, verbose=0, callbacks=list(hooks)))

    def outcome(self) -> list[Any]:
        weights = [*self.model.get_weights(), *self.other.get_weights()]
        return [*weights, np.array(self.losses), *map(np.array, self.recorded)]


def acting(act: Callable[[], Any], method: str = "on_train_batch_end", times: int = 1) -> Any:
    """A callback that does it at the chosen batch, or at the end of an epoch."""

    def do(number: int, logs: Any = None) -> None:
        if callback.remaining and (number == CHOSEN or method == "on_epoch_end"):
            callback.remaining -= 1
            assert callback.model  # on JAX, asking for it brings the weights back to it
            act()

    callback = keras.callbacks.LambdaCallback(**{method: do})
    callback.remaining = times
    return callback


def evaluates(training: Training) -> None:
    training.fit(acting(lambda: training.evaluate(training.model), times=EPOCHS))


def evaluates_with_the_hook(training: Training) -> None:
    """Another model, with the callbacks of the training."""
    act = acting(lambda: training.evaluate(training.other, *training.hooks), times=EPOCHS)
    training.fit(act)


def saves(training: Training) -> None:
    def act() -> None:
        training.model.save(training.folder / "middle.keras")
        loaded = keras.models.load_model(training.folder / "middle.keras")
        training.recorded += loaded.get_weights()

    training.fit(acting(act, times=EPOCHS))


def fits_again(method: str, **which: Any) -> Callable[[Training], None]:
    """The same model, or the other, with the same callbacks, in a callback."""

    def run(training: Training) -> None:
        model = training.other if which.get("other") else training.model
        training.fit(acting(lambda: training.fit(model=model, epochs=1), method))

    return run


def fail() -> None:
    raise ValueError("a callback")


def fits_again_and_fails(training: Training) -> None:
    def act() -> None:
        with pytest.raises(ValueError, match="a callback"):
            training.fit(acting(fail), model=training.other)

    training.fit(acting(act))


def fails(training: Training) -> None:
    with pytest.raises(ValueError, match="a callback"):
        training.fit(acting(fail))
    training.fit()


ACTS: dict[str, Callable[[Training], None]] = {
    "an evaluation": evaluates,
    "an evaluation of another model with the same callbacks": evaluates_with_the_hook,
    "a save": saves,
    "a fit of the same model at an epoch's end": fits_again("on_epoch_end"),
    "a fit of the same model at a batch's end": fits_again("on_train_batch_end"),
    "a fit of another model at a batch's end": fits_again("on_train_batch_end", other=True),
    "a fit of another model that fails": fits_again_and_fails,
    "an exception of a callback, and a second fit": fails,
}
