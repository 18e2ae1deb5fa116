"""Rows 10 and 11 of the acceptance table, with devices that sleep where a GPU would compute.

What is shown is what the engine leaves of a device's time. What buses and NCCL leave of it,
``make gpu-multi`` measures on hardware.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.imported_later import ImportedLater

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = [pytest.mark.multi_gpu, pytest.mark.alone]
BATCH = 48
STEPS = 5


@pytest.fixture(scope="module")
def alone_s(logical_devices: None) -> float:
    """A step of the source's InceptionV3, 32 images a board, took 0.7 s."""
    return calmest_step(1, batch=BATCH)


@pytest.mark.measured
@pytest.mark.parametrize(
    ("gpus", "batch", "least"),
    [
        pytest.param(4, 4 * BATCH, 0.96, id="row 10: four that are each given as much"),
        pytest.param(3, BATCH, 2.56, id="row 11: three that share the batch"),
    ],
)
def test_gpus_leave_one_behind_by_as_much_as_the_articles_did(
    alone_s: float, gpus: int, batch: int, least: float
) -> None:
    assert alone_s / calmest_step(gpus, batch=batch) >= least


def calmest_step(count: int, *, batch: int) -> float:
    """Seconds from one step to the next on one device or several, least disturbed by others."""
    training = slow.SlowTraining(*[0.3 / BATCH] * count, batch=batch, metrics=["accuracy"])
    devices = training.fit(steps=STEPS).devices
    assert all(devices.samples_of(at) == [batch // count] * STEPS for at in range(count))
    calmest: float = min(devices.step_seconds())
    return calmest
