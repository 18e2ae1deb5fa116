"""What JAX and the libraries around it wait for."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import datasets
import grain
import jax
import numpy as np
import orbax.checkpoint
from jax import numpy as jnp

from tests.stacks.programs.cycle import run_in_turn, turn


def decode(number: int) -> Any:
    time.sleep(0.05)
    return np.float32(number)


def decode_row(row: Any) -> Any:
    time.sleep(0.05)
    return row


def layers(value: Any) -> Any:
    for _ in range(20):
        value = jnp.sin(value) @ value
    return value.sum()


def grain_dataset() -> None:
    for _ in turn():
        next(BATCHES)


def hugging_face_dataset() -> None:
    for _ in turn():
        next(ROWS)


def hugging_face_stream() -> None:
    for _ in turn():
        next(STREAM)


def block_until_ready() -> None:
    for _ in turn():
        jax.block_until_ready(STEP(SQUARE))


def read_an_array() -> None:
    for _ in turn():
        float(STEP(SQUARE))


def device_put() -> None:
    for _ in turn():
        jax.device_put(np.zeros((2000, 2000)))


def compiling() -> None:
    for _ in turn():
        jax.jit(jax.grad(lambda value: layers(value)))(jnp.ones((20, 20)))


def checkpoint() -> None:
    for number, _ in enumerate(turn()):
        CHECKPOINTER.save(FOLDER / str(number), {"weights": np.zeros((1000, 1000))})
        CHECKPOINTER.wait_until_finished()
    for number in range(100):
        shutil.rmtree(FOLDER / str(number), ignore_errors=True)


if __name__ == "__main__":
    jax.config.update("jax_enable_compilation_cache", False)
    SQUARE = jnp.ones((600, 600))
    STEP = jax.jit(lambda square: jnp.linalg.svd(square)[1].sum())
    BATCHES = iter(grain.MapDataset.range(100_000).map(decode).to_iter_dataset(
        grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    ))  # fmt: skip
    table = datasets.Dataset.from_dict({"a": list(range(10_000))})
    ROWS = iter(table.with_transform(decode_row))
    STREAM = iter(table.to_iterable_dataset().map(decode_row))
    CHECKPOINTER = orbax.checkpoint.StandardCheckpointer()
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(name)
        run_in_turn(
            grain_dataset,
            hugging_face_dataset,
            hugging_face_stream,
            block_until_ready,
            read_an_array,
            device_put,
            compiling,
            checkpoint,
        )
