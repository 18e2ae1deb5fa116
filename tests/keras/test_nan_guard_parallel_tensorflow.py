"""Specification of fixed_batches and NaNGuard where a model trains on two devices at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.keras_tensorflow
SCRIPT = Path(__file__).parent / "guarding_on_two_devices.py"


@pytest.fixture(scope="module")
def said() -> list[str]:
    """The devices must be divided before TensorFlow starts: hence a process of its own."""
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("tail", ["drop", "repeat", "pad"])
def test_row_6_no_moving_statistic_is_nan_after_an_odd_last_batch(
    said: list[str], tail: str
) -> None:
    assert f"0 NaN: {tail}" in said


def test_a_layer_of_the_copies_is_named(said: list[str]) -> None:
    assert any("of layer" in line and "since batch 2 of epoch 1" in line for line in said)
