"""Each part of a batch is computed on its own device, by the operations that TensorFlow ran."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.imported_later import ImportedLater
from tests.multi_gpu.later import builders, keras

ran: Any = ImportedLater("tests.multi_gpu.operations_run")
slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = pytest.mark.multi_gpu
SAMPLES = 27
SHARES = {"CPU:1": 12, "CPU:2": 9, "CPU:3": 6}
SIDE = 6

# A convolution and a dense layer; the first one's input needs no gradient.
FORWARD, BACKWARD = 2, 3


class Ran(NamedTuple):
    """The operations of one use of a model, and the samples of each device."""

    operations: list[Any]
    samples: dict[str, set[int]]


@pytest.fixture(scope="module")
def used(logical_devices: None) -> dict[str, Ran]:
    """A model on three unequal parts: trained, evaluated and used for one batch each."""
    devices = slow.SlowDevices([0.0] * len(SHARES))
    model = builders.parallel(image_classifier(devices))
    model.compile(optimizer="sgd", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.random.default_rng(0).random((SAMPLES, SIDE, SIDE, 2)).astype("float32")
    y = np.zeros(SAMPLES, int)
    ways = {
        "fit": partial(model.fit, x, y, batch_size=SAMPLES, verbose=0),
        "evaluate": partial(model.evaluate, x, y, batch_size=SAMPLES, verbose=0),
        "predict": partial(model.predict, x, batch_size=SAMPLES, verbose=0),
    }
    return {name: watched(way, devices) for name, way in ways.items()}


class TestTraining:
    def test_computes_each_part_forward_and_backward_on_its_own_device(
        self, used: dict[str, Ran]
    ) -> None:
        assert ran.computing(used["fit"].operations) == {
            device: {"forward": FORWARD, "backward": BACKWARD} for device in SHARES
        }

    def test_gives_each_device_its_own_share_of_the_samples(self, used: dict[str, Ran]) -> None:
        assert used["fit"].samples == {device: {count} for device, count in SHARES.items()}

    def test_adds_the_gradients_up_between_the_devices(self, used: dict[str, Ran]) -> None:
        reduces = [one for one in used["fit"].operations if one.kind.startswith("CollectiveReduce")]

        assert {one.device for one in reduces} == set(SHARES)
        assert {one.joined_by for one in reduces} == {"ring"}  # by NCCL where they are GPUs

    def test_updates_the_weights_of_each_device_there(self, used: dict[str, Ran]) -> None:
        updates = [
            one.device for one in used["fit"].operations if one.kind == "AssignSubVariableOp"
        ]

        weights = 4  # a kernel and a bias of two layers
        assert {device: updates.count(device) for device in SHARES} == dict.fromkeys(
            SHARES, weights
        )


class TestEvaluatingAndPredicting:
    @pytest.mark.parametrize("way", ["evaluate", "predict"])
    def test_compute_each_part_on_its_own_device(self, used: dict[str, Ran], way: str) -> None:
        assert ran.computing(used[way].operations) == {
            device: {"forward": FORWARD} for device in SHARES
        }
        assert used[way].samples == {device: {count} for device, count in SHARES.items()}


def watched(way: Callable[[], object], devices: Any) -> Ran:
    devices.spans.clear()
    operations = ran.operations_of(way)
    samples: dict[str, set[int]] = {}
    for span in devices.spans:
        meant = list(SHARES)[span.replica]
        name = f"/busy_on_{meant}".replace(":", "_")
        (device,) = {one.device for one in operations if name in one.name}
        samples.setdefault(device, set()).add(span.samples)
    return Ran(operations, samples)


def image_classifier(devices: Any) -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 2)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            devices.layer(),
            keras.layers.Dense(builders.CLASSES, activation="softmax"),
        ]
    )
