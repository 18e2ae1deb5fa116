"""Searches: the best ratio of GPUs, in few runs, and the largest batch that fits on one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.core.attribution.batch_shares import simple_ratios, split_counts
from gpumon.errors import GpumonError
from trainer_hooks.balance.speed_curves import CountRange, SpeedCurve, best_split
from trainer_hooks.trainer_bench.measuring import GpuOutOfMemoryError, Measured, speed_of

Trainer = Callable[[Sequence[str], Sequence[int]], Measured]

_CLEAR = 0.02  # relative difference of two times that is no noise
_GOOD_ENOUGH = 0.02  # relative difference of busy times that ends the search


class RatioSearch:
    """Searches for the best ratio of GPUs at one global batch size.

    Attributes:
        alone: The runs of single GPUs.
        together: The runs of all GPUs that fit in memory.
        runs: Number of runs, including those that ran out of memory.
    """

    def __init__(self, trainer: Trainer, gpus: Sequence[str], batch: int) -> None:
        self._train = trainer
        self._gpus = tuple(gpus)
        self._batch = batch
        self._limits: list[int | None] = [None] * len(self._gpus)
        self._curves = [SpeedCurve() for _ in self._gpus]
        self.alone: list[Measured] = []
        self.together: list[Measured] = []
        self.runs = 0

    @property
    def best(self) -> Measured:
        return max(self.together, key=lambda measured: measured.samples_per_second)

    @property
    def ratios(self) -> tuple[int, ...]:
        """Ready for ``multi_gpu_model(ratios=...)``."""
        return simple_ratios(self.best.batches)

    @property
    def peaks(self) -> float:
        """Samples per second if each GPU were as fast as alone at its best batch."""
        return speed_of(self.best_alone)

    @property
    def best_alone(self) -> tuple[Measured, ...]:
        """The fastest run of each GPU alone; its batch may be smaller than its part."""
        fastest: dict[tuple[str, ...], Measured] = {}
        for measured in self.alone:
            known = fastest.setdefault(measured.gpus, measured)
            if measured.samples_per_second > known.samples_per_second:
                fastest[measured.gpus] = measured
        return tuple(fastest.values())

    def search(self, *, most_runs: int) -> RatioSearch:
        """Train until the GPUs finish together; returns itself.

        Args:
            most_runs: The most runs; at least two per GPU and one more are needed.

        Raises:
            GpumonError: The GPUs do not hold the batch.
        """
        even = split_counts(self._batch, [1] * len(self._gpus))
        for position, part in enumerate(even):
            for batch in (part, max(1, part // 2)):
                self._try_alone(position, batch)
        while not self._is_done(most_runs):
            counts = self._next_split()
            if any(counts == measured.batches for measured in self.together):
                break
            self._try_together(counts)
        if not self.together:
            raise GpumonError(
                f"memory runs out with a batch of {self._batch} on {' '.join(self._gpus)}: "
                "take a smaller one (--find-batch finds what fits on each GPU)"
            )
        return self

    def _is_done(self, most_runs: int) -> bool:
        if self.runs >= most_runs:
            return True
        if not self.together:
            return False
        busy = self.together[-1].busy_seconds
        return busy is None or min(busy) >= (1 - _GOOD_ENOUGH) * max(busy)

    def _try_alone(self, position: int, batch: int) -> None:
        limit = self._limits[position]
        if limit is not None:
            batch = min(batch, limit)
        if batch == 0:
            return  # not even one sample fits
        measured = self._run([self._gpus[position]], [batch], [position])
        if measured is not None:
            self.alone.append(measured)
            self._curves[position] = self._curves[position].with_interval(
                batch, _busy(measured)[0], tolerance=_CLEAR
            )

    def _try_together(self, counts: Sequence[int]) -> None:
        measured = self._run(self._gpus, counts, range(len(self._gpus)))
        if measured is None:
            return
        self.together.append(measured)
        if measured.busy_seconds is not None:
            self._curves = [
                curve.restarted_at(count, seconds)
                for curve, count, seconds in zip(self._curves, counts, _busy(measured), strict=True)
            ]

    def _run(
        self, gpus: Sequence[str], counts: Sequence[int], positions: Sequence[int]
    ) -> Measured | None:
        self.runs += 1
        try:
            return self._train(gpus, counts)
        except GpuOutOfMemoryError as error:
            blamed = range(len(counts)) if error.gpu is None else [error.gpu]
            for at in blamed:
                known = self._limits[positions[at]]
                less = counts[at] - 1 if error.gpu is not None else int(counts[at] * 0.9)
                self._limits[positions[at]] = less if known is None else min(known, less)
            return None

    def _next_split(self) -> tuple[int, ...]:
        ranges = [
            CountRange(1, self._batch if limit is None else max(1, min(limit, self._batch)))
            for limit in self._limits
        ]
        if not all(curve.points for curve in self._curves):
            raise GpumonError(
                f"memory runs out on a GPU alone, with half its part of {self._batch} samples: "
                "take a smaller one (--find-batch finds what fits on each GPU)"
            )
        try:
            return best_split([curve.seconds_of for curve in self._curves], self._batch, ranges)
        except ValueError as error:
            raise GpumonError(f"memory runs out: {error}; take a smaller batch") from error


def _busy(measured: Measured) -> tuple[float, ...]:
    """Busy seconds per GPU and step; the step's seconds where busy times are unknown."""
    if measured.busy_seconds is None:
        return (measured.step_seconds,) * len(measured.batches)
    return tuple(seconds / measured.steps for seconds in measured.busy_seconds)


_PRECISION: Final = 64
"""The search ends when the answer is known to 1/64."""

_ROUND_TO: Final = 8
LARGEST: Final = 1 << 20


Try = tuple[int, float | None]
"""A batch and its samples per second; ``None`` where memory ran out."""


@dataclass(frozen=True, slots=True)
class BatchFound:
    """The result of a search.

    Attributes:
        fits: The largest batch that was trained.
        advised: ``fits`` less the margin, a multiple of 8 where it is large enough; it was trained
            after memory had run out for the last time.
    """

    fits: int
    advised: int
    tries: tuple[Try, ...]


def find_batch(
    train: Callable[[int], float | None],
    *,
    first: int = 64,
    margin: float = 0.05,
    most: int = LARGEST,
) -> BatchFound | None:
    """Search for the largest batch.

    Args:
        train: Tries a batch; returns samples per second, or ``None`` where it does not fit.
        first: The first batch to try.
        margin: The part of the largest batch to leave free: free memory varies.
        most: The largest batch to try.

    Returns:
        ``None`` where not even one sample fits.

    >>> found = find_batch(lambda batch: 100.0 if batch <= 1000 else None)
    >>> found.fits, found.advised, [batch for batch, _ in found.tries[:6]]
    (1000, 944, [64, 128, 256, 512, 1024, 768])
    """
    tries: list[Try] = []

    def fits(batch: int) -> bool:
        tries.append((batch, train(batch)))
        return tries[-1][1] is not None

    largest, too_large = _doubled(fits, min(first, most), most)
    while largest and too_large is not None and too_large - largest > max(1, largest // _PRECISION):
        middle = (largest + too_large) // 2
        if fits(middle):
            largest = middle
        else:
            too_large = middle
    batch = int(largest * (1 - margin))
    while largest:
        advised = _rounded(batch) or 1
        if fits(advised):
            return BatchFound(largest, advised, tuple(tries))
        if advised == 1:
            break
        # Smaller even without a margin: what no longer fits is not tried again.
        batch = min(int(advised * (1 - margin)), advised - max(1, advised // _PRECISION))
    return None


def _doubled(fits: Callable[[int], bool], batch: int, most: int) -> tuple[int, int | None]:
    """The last size that fits, 0 for none, and the first that does not."""
    too_large = None
    while batch and not fits(batch):
        too_large, batch = batch, batch // 2
    while batch and too_large is None and batch < most:
        larger = min(batch * 2, most)
        if fits(larger):
            batch = larger
        else:
            too_large = larger
    return batch, too_large


def _rounded(batch: int) -> int:
    return batch // _ROUND_TO * _ROUND_TO if batch >= 4 * _ROUND_TO else batch
