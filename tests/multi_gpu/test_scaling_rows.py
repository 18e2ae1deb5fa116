"""Rows 10 and 11 of the acceptance table, with devices that sleep where a GPU would compute.

They show what the engine leaves of a device's time. ``make gpu-multi`` measures real buses and
NCCL.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.imported_later import ImportedLater
from tests.needs import in_make_truth

slow: Any = ImportedLater("tests.multi_gpu.slow_devices")

pytestmark = [pytest.mark.multi_gpu, pytest.mark.alone, pytest.mark.measured, in_make_truth]
BATCH = 48
STEPS = 5


@pytest.mark.parametrize(
    ("gpus", "batch", "least"),
    [
        pytest.param(4, 4 * BATCH, 0.96, id="row 10: four GPUs, as many samples each"),
        pytest.param(3, BATCH, 2.56, id="row 11: three GPUs share the batch"),
    ],
)
def test_speed_up_over_one_gpu_is_that_of_the_articles(gpus: int, batch: int, least: float) -> None:
    assert fastest_step_s(1, batch=BATCH) / fastest_step_s(gpus, batch=batch) >= least


def fastest_step_s(count: int, *, batch: int) -> float:
    """A pass over ``BATCH`` images takes 0.3 s; the article's InceptionV3 took 0.7 s a step."""
    training = slow.SlowTraining(*[0.3 / BATCH] * count, batch=batch, metrics=["accuracy"])
    devices = training.fit(steps=STEPS).devices
    assert all(devices.samples_of(at) == [batch // count] * STEPS for at in range(count))
    return float(min(devices.step_seconds()))
