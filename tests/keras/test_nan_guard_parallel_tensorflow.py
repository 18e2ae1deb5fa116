"""Specification of fixed_batches and NaNGuard where a model trains on two devices at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.keras.told_by_script import told_on_two_devices

pytestmark = pytest.mark.keras_tensorflow


@pytest.fixture(scope="module")
def told() -> Any:
    return told_on_two_devices("guarding_on_two_devices")


@pytest.mark.parametrize("tail", ["drop", "repeat", "pad"])
def test_row_6_no_moving_statistic_is_nan_after_an_odd_last_batch(told: Any, tail: str) -> None:
    assert told["NaN in"][tail] == 0
    assert told["found in"][tail] is None


def test_a_layer_of_the_copies_is_named(told: Any) -> None:
    assert told["layer"] == [f"{told['model']}/stem/norm", 2, 2]
    assert "of layer" in told["said"]
    assert "since batch 2 of epoch 1" in told["said"]
