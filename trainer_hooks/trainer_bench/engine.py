"""What the bench asks of whatever trains: a real framework, or GPUs that are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BenchStep:
    """One step of training.

    Attributes:
        samples: In its batch, over all GPUs.
        seconds: It took.
        busy_seconds: Of each GPU; ``None`` where the engine cannot tell.
    """

    samples: int
    seconds: float
    busy_seconds: tuple[float, ...] | None = None


class GpuOutOfMemoryError(Exception):
    """A GPU's memory does not hold its part of the batch; the engine can go on with a smaller.

    Attributes:
        gpu: Which of the GPUs, from 0; ``None`` where nobody can tell.
    """

    def __init__(self, gpu: int | None) -> None:
        super().__init__("out of memory")
        self.gpu = gpu


class Engine(Protocol):
    """Trains the bench's model."""

    is_simulated: bool

    def devices(self) -> tuple[str, ...]:
        """A line for each device, for people."""

    def gpus(self) -> tuple[str, ...]:
        """The names of all GPUs, such as ``"GPU:0"``."""

    def train(self, gpus: Sequence[str], batches: Sequence[int]) -> Iterator[BenchStep]:
        """Train without end, after one step that is not told: what it compiles is no speed.

        Args:
            gpus: Names; none for the engine's default device.
            batches: Samples of each step for each of ``gpus``, or one for the default.

        Raises:
            GpuOutOfMemoryError: At any step.
        """
