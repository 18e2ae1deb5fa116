"""What one scrape looks at, and what a reader of it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.sample import GpuSample
from gpumon.core.state import GpuState, RunState
from gpumon.core.units import NS_PER_S
from gpumon.outlets.metric_selection import Selection

_SHORTEST_STALE_NS: Final = 2 * NS_PER_S


class HistogramValue(NamedTuple):
    """Cumulative counts below each bound, how many in all, and their sum in the metric's unit."""

    bucket_counts: tuple[int, ...]
    gap_count: int
    total: float


Row: TypeAlias = tuple[tuple[object, ...], "float | HistogramValue | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """What one scrape looks at.

    Attributes:
        selection: The newest tick; ``None`` before the first.
        now_ns: CLOCK_MONOTONIC of the scrape.
        version: Of gpumon.
    """

    selection: Selection | None
    now_ns: int
    version: str

    @property
    def stale(self) -> bool:
        """Whether the newest tick is more than two periods old: then nothing is known of *now*."""
        if self.selection is None:
            return True
        state = self.selection.state
        age_ns = self.now_ns - state.taken_at_ns
        return age_ns > max(2 * state.period_ns, _SHORTEST_STALE_NS)

    def gpus_counted(self) -> Iterator[GpuState]:
        """GPUs whose counters hold: all but those that are lost, or not in the machine any more.

        A GPU that nobody could ask (the driver hangs) keeps its counters:
        they remain true, and dashboards look back over them. One that is cut
        by MIG has no time to count, but what it had before.
        """
        if self.selection is not None:
            for gpu in self.selection.gpus:
                is_cut = gpu.device.mig_enabled and not gpu.totals.observed_ns
                if gpu.listed and not is_cut and (gpu.present or gpu.error is None):
                    yield gpu

    def gpus_present(self) -> Iterator[GpuState]:
        """GPUs that answered within the last two periods."""
        if self.selection is not None and not self.stale:
            yield from (gpu for gpu in self.selection.gpus if gpu.present)

    def runs(self) -> Iterator[RunState]:
        """Runs with series."""
        if self.selection is not None:
            yield from self.selection.runs

    def runs_now(self) -> Iterator[RunState]:
        """The same, while it is known what they are doing."""
        if not self.stale:
            yield from self.runs()


Reader: TypeAlias = Callable[[MetricView], Iterable[Row]]


def latest(read: Callable[[GpuSample], float | None]) -> Reader:
    """A reader of one number of each GPU's newest sample."""
    return lambda view: (
        ((gpu.device.uuid,), read(gpu.latest))
        for gpu in view.gpus_present()
        if gpu.latest is not None
    )
