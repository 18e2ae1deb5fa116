"""The GPUs that TensorFlow sees, and figures for the page (``make gpu-multi``)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH_S = 900
MEASURED = Callable[[str, str, str], None]
BENCH = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def boards() -> tuple[str, ...]:
    """TensorFlow's names of the GPUs, two or more, computing in float32 as CPUs do."""
    missing = [module for module in ("keras", "tensorflow") if find_spec(module) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed here")
    import tensorflow as tf

    if not tf.test.is_built_with_cuda():
        pytest.skip("this TensorFlow is not built for CUDA")
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < 2:
        pytest.skip(f"needs two GPUs, and TensorFlow sees {len(gpus)}")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return tuple(f"GPU:{number}" for number in range(len(gpus)))


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> MEASURED:
    """Puts a figure on the page: its name, value and target."""

    def record(what: str, figure: str, target: str = "") -> None:
        record_property("figure", f"{what} | {figure} | {target}")

    return record


@pytest.fixture
def trainer_bench(boards: tuple[str, ...]) -> BENCH:
    """Runs ``trainer-bench --json`` in a process of its own."""

    def run(*arguments: object) -> dict[str, Any]:
        command = [sys.executable, "-m", "trainer_hooks.trainer_bench", "--json"]
        done = subprocess.run(
            [*command, *map(str, arguments)],
            cwd=ROOT, capture_output=True, text=True, timeout=BENCH_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        reported: dict[str, Any] = json.loads(done.stdout)
        assert reported["simulated"] is False
        return reported

    return run
