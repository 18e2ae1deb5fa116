"""These tests split batches over logical CPU devices: CPU:0 is the host, the others are GPUs."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from tests.keras.conftest import own_runtime_folder

__all__ = ["own_runtime_folder"]

DEVICES = 5
THREADS = 16
"""A sleeping device occupies one of TensorFlow's threads."""


@pytest.fixture(scope="session", autouse=True)
def logical_devices(request: pytest.FixtureRequest) -> None:
    """TensorFlow with enough devices for these tests; skipped where it is not installed."""
    missing = [module for module in ("keras", "tensorflow") if find_spec(module) is None]
    if missing and os.environ.get("GPUMON_REQUIRE_KERAS") == "1":
        pytest.fail(f"{' and '.join(missing)} must be installed here")
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: use make test-tensorflow")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * DEVICES,
    )
