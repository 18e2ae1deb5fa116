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


class TestRow10FourGpus:
    @pytest.mark.measured
    def test_each_work_at_least_96_percent_of_a_step_of_a_quarter_second(self) -> None:
        """A step of the source's InceptionV3, 32 images a board, took 0.7 s."""
        alone = calmest_step(1, batch=BATCH, sample_seconds=0.25 / BATCH)
        four = calmest_step(4, batch=4 * BATCH, sample_seconds=0.25 / BATCH)

        assert alone / four >= 0.96


class TestRow11ThreeGpus:
    @pytest.mark.measured
    def test_are_at_least_2_56_times_as_fast_as_one_with_the_same_batches(self) -> None:
        alone = calmest_step(1, batch=BATCH, sample_seconds=0.3 / BATCH)
        three = calmest_step(3, batch=BATCH, sample_seconds=0.3 / BATCH)

        assert alone / three >= 2.56


def calmest_step(count: int, *, batch: int, sample_seconds: float) -> float:
    """Seconds from one step to the next on one device or several, least disturbed by others."""
    seconds = [sample_seconds] * count
    devices = (
        slow.SlowTraining(*seconds, batch=batch, metrics=["accuracy"]).fit(steps=STEPS).devices
    )
    assert all(devices.samples_of(at) == [batch // count] * STEPS for at in range(count))
    calmest: float = min(devices.step_seconds())
    return calmest
