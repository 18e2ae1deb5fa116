"""A dataset on a slow store: compressed files that each take a while to arrive."""

from __future__ import annotations

import random
import time
import zlib
from array import array
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import Any

FEATURES = 512
CLASSES = 10
_FILES = 32
_FILES_A_BATCH = 4


class SlowStore:
    """The batches of a slow store by number, each from four files that take their time.

    It has what torch's ``DataLoader`` needs of a dataset. The class of a row can be learned from
    its features.

    Args:
        folder: Where the files are; written if they are not. Batches go round them.
        batches: How many there are.
        latency_ms: How long the store lets each file wait, as a network file
            system or an object store does.
        shape: Features of a row, classes, and rows of a file.
        sleep: Waits for so many seconds.

    Attributes:
        reading_ns: How long this process spent here; workers count on their own.
    """

    def __init__(
        self,
        folder: Path,
        batches: int,
        latency_ms: float,
        *,
        shape: tuple[int, int, int] = (FEATURES, CLASSES, 32),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._paths = [folder / f"part-{number:03d}.z" for number in range(_FILES)]
        self._batches, self._latency_s, self._sleep = batches, latency_ms / 1000, sleep
        self.reading_ns = 0
        if not self._paths[-1].exists():
            self._write(*shape)

    def _write(self, features: int, classes: int, rows: int) -> None:
        draw = random.Random(0).gauss
        truth = [[draw(0, 1) for _ in range(features)] for _ in range(classes)]
        for path in self._paths:
            values = array("f")
            for _ in range(rows):
                row = [draw(0, 1) for _ in range(features)]
                scores = [sum(map(mul, row, weights)) for weights in truth]
                values.extend([*row, scores.index(max(scores))])
            path.write_bytes(zlib.compress(values.tobytes(), 1))

    def __len__(self) -> int:
        return self._batches

    def read(self, number: int) -> array[float]:
        """The rows of a batch, one after the other: features, then the class."""
        began_ns = time.monotonic_ns()
        values = array("f")
        for part in range(number * _FILES_A_BATCH, (number + 1) * _FILES_A_BATCH):
            self._sleep(self._latency_s)
            values.frombytes(zlib.decompress(self._paths[part % _FILES].read_bytes()))
        self.reading_ns += time.monotonic_ns() - began_ns
        return values

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        """Arrays of 128 rows, float32 (rows, features), and of their classes, int64 (rows,)."""
        import numpy as np

        block = np.frombuffer(self.read(number), np.float32).reshape(-1, FEATURES + 1)
        return block[:, :FEATURES].copy(), block[:, FEATURES].astype(np.int64)
