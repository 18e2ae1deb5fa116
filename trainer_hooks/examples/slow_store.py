"""A data set on a slow store: compressed files, each of which takes a while to come."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.examples.read_ahead import read_ahead

FEATURES = 512
CLASSES = 10
_FILES_A_BATCH = 4
_ROWS_A_FILE = 32

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]


def make_store(folder: Path, files: int = 32, seed: int = 0) -> None:
    """Write the data set: files of compressed rows, with a label each that can be learned."""
    random = np.random.default_rng(seed)
    true_weights = random.normal(size=(FEATURES, CLASSES))
    for number in range(files):
        rows = random.normal(size=(_ROWS_A_FILE, FEATURES)).astype(np.float32)
        labels = (rows @ true_weights).argmax(axis=1).astype(np.float32)
        block = np.concatenate([rows, labels[:, None]], axis=1).astype(np.float32)
        (folder / f"part-{number:03d}.z").write_bytes(zlib.compress(block.tobytes(), 1))


def read_batches(folder: Path, *, batches: int, latency_s: float) -> Iterator[Batch]:
    """Read one batch after the other, as a loop without prefetch does.

    Args:
        folder: A store made by ``make_store``.
        batches: How many batches to read, going round the files.
        latency_s: How long the store lets each file wait, as a network file
            system or an object store does.
    """
    paths = sorted(folder.glob("part-*.z"))
    for batch in range(batches):
        first = batch * _FILES_A_BATCH
        yield read_batch(
            [paths[(first + k) % len(paths)] for k in range(_FILES_A_BATCH)], latency_s
        )


def read_batch(paths: list[Path], latency_s: float) -> Batch:
    """Read and unpack the files of one batch."""
    blocks = []
    for path in paths:
        time.sleep(latency_s)
        raw = np.frombuffer(zlib.decompress(path.read_bytes()), dtype=np.float32)
        blocks.append(raw.reshape(-1, FEATURES + 1))
    block = np.concatenate(blocks)
    features = block[:, :FEATURES]
    return (features - features.mean(axis=0)), block[:, FEATURES].astype(np.int64)


def prefetch_batches(
    folder: Path, *, batches: int, latency_s: float, workers: int
) -> Iterator[Batch]:
    """The same batches in the same order, read ahead by threads."""
    paths = sorted(folder.glob("part-*.z"))

    def read(batch: int) -> Batch:
        first = batch * _FILES_A_BATCH
        return read_batch(
            [paths[(first + k) % len(paths)] for k in range(_FILES_A_BATCH)], latency_s
        )

    return read_ahead(read, batches=batches, workers=workers)
