"""A tagged training run that pauses for one known reason, on CUDA or, to try it, on the CPU.

    python -m tests.truth.board_logs.training KIND SECONDS [cpu]

Needs PyTorch and NumPy. It really does what its kind is named after. Only waits for other machines,
people and remote storage are random sleeps.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy
import torch

from trainer_hooks import phase, step, timed

PRODUCT_SIDE: Final = {"cuda": 8192, "cpu": 512}
CHECKPOINT_BYTES: Final = {"cuda": 3 << 30, "cpu": 64 << 20}
KERNELS_AHEAD: Final = 4
STEPS_BETWEEN: Final = 50
"""From one pause to the next."""


class Board:
    """Matrix products that keep the device busy."""

    def __init__(self, device: str) -> None:
        side = PRODUCT_SIDE[device]
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        self.device = device
        self._rows = torch.rand(side, side, device=device, dtype=kind)
        for _ in range(20):
            self._product()
        began_s = time.perf_counter()
        for _ in range(20):
            self._product()
        self._product_s = (time.perf_counter() - began_s) / 20

    def _product(self) -> None:
        torch.mm(self._rows, self._rows)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def work(self, seconds: float) -> None:
        count = max(1, round(seconds / self._product_s))
        for number in range(count):
            torch.mm(self._rows, self._rows)
            if number % KERNELS_AHEAD == KERNELS_AHEAD - 1:
                self._product()
        self._product()


class Decoded(torch.utils.data.Dataset):  # type: ignore[misc, type-arg, unused-ignore]
    """Samples that each cost their worker about ``cost_s`` seconds of a core."""

    def __init__(self, count: int, cost_s: float) -> None:
        self._count, self._cost_s = count, cost_s

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        size = random.Random(index).lognormvariate(0.0, 0.1)
        until_s = time.thread_time() + self._cost_s * size
        picture = numpy.random.default_rng(index).random((256, 256))
        while time.thread_time() < until_s:
            picture = numpy.fft.fft2(picture).real / 256
        return torch.from_numpy(picture[:16, :16].copy())


def decoded(count: int, cost_s: float, workers: int) -> Iterator[Any]:
    """Tagged batches of a loader whose workers decode."""
    pictures = Decoded(count, cost_s)
    return iter(timed(torch.utils.data.DataLoader(pictures, batch_size=1, num_workers=workers)))


def fetched(every: int, wait_s: Callable[[], float]) -> Iterator[int]:
    """Tagged batches from shards: every so many batches, wait for the next shard."""

    def shards() -> Iterator[int]:
        for number in itertools.count():
            if number % every == 0:
                time.sleep(wait_s())
            yield number

    return iter(timed(shards()))


class Pauses:
    """What a run does in its pauses; each method is called after a step."""

    def __init__(self, board: Board, rng: random.Random) -> None:
        self._board, self._rng = board, rng
        size = CHECKPOINT_BYTES[board.device]
        self._state = torch.zeros(size, dtype=torch.uint8, device=board.device)
        self._writer: threading.Thread | None = None

    def write(self) -> None:
        """A checkpoint."""
        with phase("checkpoint"):
            _write(self._state)

    def write_beside(self) -> None:
        """A checkpoint that is copied to the host and written in the background."""
        with phase("checkpoint"):
            kept = [self._state.cpu() for _ in range(2)]
        if self._writer is None or not self._writer.is_alive():
            self._writer = threading.Thread(target=_write, args=(kept,), daemon=True)
            self._writer.start()

    def wait_for_others(self) -> None:
        """A round of other machines."""
        with phase("other"):
            time.sleep(3.0 * self._rng.lognormvariate(0.0, 0.25))

    def validate(self) -> None:
        """A validation with a slow loader."""
        with phase("validation"):
            for _ in decoded(6, cost_s=1.0, workers=2):
                self._board.work(0.1)


def _write(state: object) -> None:
    with tempfile.TemporaryFile() as file:
        torch.save(state, file)
        os.fsync(file.fileno())


def train(kind: str, seconds: float, device: str) -> None:
    board, rng = Board(device), random.Random(kind)
    until_s = time.monotonic() + seconds
    if kind == "requests":
        while time.monotonic() < until_s:
            time.sleep(rng.expovariate(1 / 3.0))
            board.work(rng.lognormvariate(0.6, 0.6))
        return
    batches: Iterator[Any] = itertools.repeat(0)
    step_s = 0.12
    if kind == "late_loader":
        batches, step_s = decoded(100_000, cost_s=3.0, workers=3), 0.6
    elif kind == "erratic_storage":
        batches, step_s = fetched(1, lambda: 0.12 * rng.lognormvariate(0.0, 1.6)), 0.25
    elif kind == "shard_fetch":
        batches = fetched(40, lambda: 2.5 * rng.lognormvariate(0.0, 0.2))
    pauses = Pauses(board, rng)
    pause = {
        "checkpoints": pauses.write,
        "asynchronous_checkpoints": pauses.write_beside,
        "rounds": pauses.wait_for_others,
        "late_validation": pauses.validate,
    }.get(kind)
    for number, _ in enumerate(batches, start=1):
        with phase("train_step"):
            board.work(step_s)
        step(samples=1)
        if pause is not None and number % STEPS_BETWEEN == 0:
            pause()
        if time.monotonic() >= until_s:
            return


if __name__ == "__main__":
    train(sys.argv[1], float(sys.argv[2]), (sys.argv[3:] or ["cuda"])[0])
