"""``RatioBalancer`` levels the fit it is in, whatever is done in the middle of that.

Trainings are held against one device: a change of the split changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.multi_gpu.later import b, keras, m, multi_gpu

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu

CLOSE = 1e-6
ACTS_AT = 4


class Training:
    """On one device, or levelled on two: with the model itself, and one to train beside it."""

    def __init__(self, devices: int, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.model, self.other = m.made(devices)[1], m.made(devices)[1]
        self.callbacks: list[Any] = []
        if devices > 1:
            self.callbacks = [multi_gpu.RatioBalancer(every=3, warm_up=1, verbose=0)]
        self.losses: list[float] = []
        self.told: list[Any] = []

    def fit(self, *acts: Any, model: Any = None, epochs: int = 2) -> None:
        x, y = m.rows()
        history = (model or self.model).fit(
            x, y, batch_size=m.BATCH, epochs=epochs, shuffle=False, verbose=0,
            callbacks=[*self.callbacks, *acts],
        )  # fmt: skip
        self.losses += history.history["loss"]

    def left(self) -> list[Any]:
        weights = [*self.model.get_weights(), *self.other.get_weights()]
        return [*weights, self.losses, *self.told]


def acting(act: Callable[[], Any]) -> Any:
    """A callback that does it once, at a batch's end."""
    left = [1]

    def do(batch: int, logs: Any) -> None:
        if batch == ACTS_AT and left:
            left.clear()
            act()

    return keras.callbacks.LambdaCallback(on_train_batch_end=do)


def evaluates(training: Training) -> None:
    x, y = m.rows(seed=1)
    words = {"batch_size": m.BATCH, "verbose": 0}

    def act() -> None:
        training.told.append(training.model.evaluate(x, y, **words))
        hooks = training.callbacks
        training.told.append(training.other.evaluate(x, y, callbacks=hooks, **words))

    training.fit(acting(act))


def saves(training: Training) -> None:
    path = training.folder / "middle.keras"

    def act() -> None:
        training.model.save(path)
        training.told += keras.models.load_model(path).get_weights()

    training.fit(acting(act))


def fits(training: Training) -> None:
    training.fit(acting(lambda: training.fit(epochs=1)))


def fits_another(training: Training) -> None:
    training.fit(acting(lambda: training.fit(model=training.other)))


def fails(training: Training) -> None:
    def fail() -> None:
        raise ValueError("of a callback")

    with pytest.raises(ValueError, match="of a callback"):
        training.fit(acting(fail))
    training.fit()


ACTS = {
    "evaluations": evaluates,
    "a save": saves,
    "a fit": fits,
    "a fit of another model": fits_another,
    "an exception, and a second fit": fails,
}


@pytest.mark.parametrize("act", ACTS)
def test_a_training_is_the_one_of_one_device(act: str, tmp_path: Path) -> None:
    told = []
    for devices in (1, 2):
        training = Training(devices, tmp_path / str(devices))
        ACTS[act](training)
        told.append(training.left())

    assert m.furthest(*told) <= CLOSE


def on_slow_devices() -> Any:
    """A model whose first device takes four times as long for a sample as the second."""
    devices = slow.SlowDevices((4e-4, 1e-4))
    model = b.parallel(slow.slow_classifier(devices), devices=["CPU:1", "CPU:2"], ratios=None)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def batches(steps: int, size: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(size * steps, 32)).astype("float32")
    words = {"batch_size": size, "shuffle": False, "verbose": 0}
    return {"x": x, "y": random.integers(0, 10, len(x)), **words}


@pytest.mark.alone
@pytest.mark.parametrize("which", ["the same model", "another model", "another that fails"])
def test_the_fit_around_is_levelled_after_one_inside(which: str) -> None:
    model, other = on_slow_devices(), on_slow_devices()
    balancer = multi_gpu.RatioBalancer(every=5, warm_up=2, verbose=0)

    def fail(batch: int, logs: Any) -> None:
        raise ValueError("inside")

    def train_inside() -> None:
        trained = model if which == "the same model" else other
        callbacks = [balancer]
        if which == "another that fails":
            callbacks.append(keras.callbacks.LambdaCallback(on_train_batch_end=fail))
        with suppress(ValueError):
            trained.fit(**batches(12, 40), callbacks=callbacks)

    with pytest.warns(
        RuntimeWarning, match="not the one inside .* give it a RatioBalancer of its own"
    ):
        model.fit(**batches(26, 120), callbacks=[balancer, acting(train_inside)])

    assert balancer.changes
    assert {sum(change.new) for change in balancer.changes} == {120}
    first, second = model.ratios
    assert first < second
    assert other.ratios == (1.0, 1.0)
