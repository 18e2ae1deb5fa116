"""A data set on a slow store: compressed files, each of which takes a while to come."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FEATURES = 512
CLASSES = 10
_FILES = 32
_FILES_A_BATCH = 4
_ROWS_A_FILE = 32

Batch = tuple[NDArray[np.float32], NDArray[np.int64]]


def _write_files(folder: Path) -> None:
    """The data set: files of compressed rows, with a label each that can be learned."""
    random = np.random.default_rng(0)
    true_weights = random.normal(size=(FEATURES, CLASSES))
    for number in range(_FILES):
        rows = random.normal(size=(_ROWS_A_FILE, FEATURES)).astype(np.float32)
        labels = (rows @ true_weights).argmax(axis=1).astype(np.float32)
        block = np.concatenate([rows, labels[:, None]], axis=1).astype(np.float32)
        (folder / f"part-{number:03d}.z").write_bytes(zlib.compress(block.tobytes(), 1))


class SlowStore:
    """The batches of a slow store by number: 128 rows each, from four files that take their time.

    It is as much of a data set as torch's ``DataLoader`` asks for.

    Args:
        folder: Where the files are; written if they are not. Batches go round them.
        batches: How many there are.
        latency_ms: How long the store lets each file wait, as a network file
            system or an object store does.
        sleep: Waits for so many seconds.

    Attributes:
        reading_ns: How long this process spent here; workers count on their own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        batches: int,
        latency_ms: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not any(folder.glob("part-*.z")):
            _write_files(folder)
        self._paths = sorted(folder.glob("part-*.z"))
        self._batches, self._latency_s, self._sleep = batches, latency_ms / 1000, sleep
        self.reading_ns = 0

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Batch:
        began_ns = time.monotonic_ns()
        blocks = []
        for number in range(index * _FILES_A_BATCH, (index + 1) * _FILES_A_BATCH):
            self._sleep(self._latency_s)
            packed = self._paths[number % len(self._paths)].read_bytes()
            raw = np.frombuffer(zlib.decompress(packed), dtype=np.float32)
            blocks.append(raw.reshape(-1, FEATURES + 1))
        block = np.concatenate(blocks)
        features = block[:, :FEATURES]
        batch = (features - features.mean(axis=0)), block[:, FEATURES].astype(np.int64)
        self.reading_ns += time.monotonic_ns() - began_ns
        return batch
