"""What one scrape looks at: each label set once, and no more than Prometheus can bear."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from gpumon.core.clock import NS_PER_S
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState
from gpumon.core.wording import label_text

MAX_RUNS: Final = 64
"""Training runs with series of their own; a looping client must not fill Prometheus."""

MAX_OTHERS: Final = 256
"""GPUs, collectors and driver functions with series: far beyond any machine."""

MAX_XIDS: Final = 64
"""XID errors of a GPU with series of their own, the lowest first; NVIDIA lists fewer than 200."""

_XIDS: Final = "gpumon_gpu_xid_errors_total"
_ERRORS: Final = "gpumon_nvml_errors_total"
_SHORTEST_STALE_NS: Final = 2 * NS_PER_S

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricView:
    """One tick's state, cut down to what may become series; empty before the first tick.

    Attributes:
        state: The whole state; ``None`` before the first tick.
        gpus: GPUs with distinct UUIDs.
        runs: Runs with distinct labels, living ones first.
        collectors: Collectors with distinct names.
        call_seconds: Driver functions with distinct names.
        call_counts: The same functions, so that one cap is for both.
        call_errors: Distinct pairs of driver function and error.
        dropped: ``(family, label sets left out since the start)``.
        now_ns: CLOCK_MONOTONIC of the scrape.
        version: Of gpumon.
    """

    state: MonitorState | None = None
    gpus: tuple[GpuState, ...] = ()
    runs: tuple[RunState, ...] = ()
    collectors: tuple[CollectorState, ...] = ()
    call_seconds: tuple[tuple[str, float], ...] = ()
    call_counts: tuple[tuple[str, int], ...] = ()
    call_errors: tuple[tuple[str, int, int], ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    now_ns: int = 0
    version: str = ""

    @property
    def stale(self) -> bool:
        """Whether the newest tick is more than two periods old: then nothing is known of *now*."""
        if self.state is None:
            return True
        age_ns = self.now_ns - self.state.taken_at_ns
        return age_ns > max(2 * self.state.period_ns, _SHORTEST_STALE_NS)

    def gpus_counted(self) -> Iterator[GpuState]:
        """GPUs whose counters hold: all but those that are lost, or not in the machine any more.

        A GPU that nobody could ask (the driver hangs) keeps its counters:
        they remain true, and dashboards look back over them. One that is cut
        by MIG has no time to count, but what it had before.
        """
        for gpu in self.gpus:
            is_cut = gpu.device.mig_enabled and not gpu.totals.observed_ns
            if gpu.listed and not is_cut and (gpu.present or gpu.error is None):
                yield gpu

    def gpus_present(self) -> Iterator[GpuState]:
        """GPUs that answered within the last two periods."""
        if not self.stale:
            yield from (gpu for gpu in self.gpus if gpu.present)

    def runs_now(self) -> tuple[RunState, ...]:
        """The runs, while it is known what they are doing."""
        return () if self.stale else self.runs


class LabelBudget:
    """Selects once in each tick, and counts what it leaves out.

    Counting by tick and not by scrape keeps the counter the same for two
    scrapers of different rhythm.
    """

    def __init__(self) -> None:
        self._dropped = {"gpumon_gpu": 0, "gpumon_training": 0, "gpumon_collector": 0,
                         "gpumon_nvml_call": 0, _XIDS: 0, _ERRORS: 0}  # fmt: skip

    def select(self, state: MonitorState) -> MetricView:
        """What of this state may become series."""
        runs = sorted(state.runs, key=lambda run: not run.alive)
        for gpu in state.gpus:
            if len(gpu.xid_errors) > MAX_XIDS:
                self._dropped[_XIDS] += len(gpu.xid_errors) - MAX_XIDS
        call_seconds = self._keep("gpumon_nvml_call", state.call_seconds, lambda one: one[0])
        called = dict(call_seconds)
        return MetricView(
            state=state,
            gpus=self._keep("gpumon_gpu", state.gpus, lambda gpu: gpu.device.uuid),
            runs=self._keep("gpumon_training", runs, lambda run: run.run, MAX_RUNS),
            collectors=self._keep("gpumon_collector", state.collectors, lambda one: one.name),
            call_seconds=call_seconds,
            call_counts=tuple(one for one in state.call_counts if one[0] in called),
            call_errors=self._keep(_ERRORS, state.call_errors, lambda one: f"{one[0]} {one[1]}"),
            dropped=tuple(self._dropped.items()),
        )

    def _keep(
        self,
        family: str,
        items: Iterable[_Item],
        key: Callable[[_Item], str],
        limit: int = MAX_OTHERS,
    ) -> tuple[_Item, ...]:
        kept: dict[str, _Item] = {}
        for item in items:
            # Two names may differ only in what sanitising takes away.
            name = label_text(key(item))
            if name in kept or len(kept) >= limit:
                self._dropped[family] += 1
            else:
                kept[name] = item
        return tuple(kept.values())
