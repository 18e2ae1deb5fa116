"""From one tick's state to label values and numbers: what a scrape looks at, and its readers.

A ``LabelBudget`` selects once a tick: each label set once, and no more than
Prometheus can bear. Of that ``MetricView`` each family has one small reader,
which is pure and knows nothing of Prometheus. A value of ``None`` is *no
answer*, and gets no series. What a board says of itself goes with the GPU; its
time and its errors are counted on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gpumon.core.board.driver_codes import THROTTLE_REASONS
from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.phase import CAUSES, PHASES
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState
from gpumon.core.time.totals import GpuTotals
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


class HistogramValue(NamedTuple):
    """Cumulative counts below each bound, how many in all, and their sum in the metric's unit."""

    bucket_counts: tuple[int, ...]
    gap_count: int
    total: float


Row: TypeAlias = tuple[tuple[object, ...], float | HistogramValue | None]
Reader: TypeAlias = Callable[[MetricView], Iterable[Row]]


# -- one number of each GPU, run or collector -----------------------------------


def _counted(read: Callable[[GpuState], float | HistogramValue]) -> Reader:
    return lambda view: (((gpu.device.uuid,), read(gpu)) for gpu in view.gpus_counted())


def _total(read: Callable[[GpuTotals], float | HistogramValue]) -> Reader:
    return _counted(lambda gpu: read(gpu.totals))


def _present(read: Callable[[GpuState], float | None]) -> Reader:
    return lambda view: (((gpu.device.uuid,), read(gpu)) for gpu in view.gpus_present())


def _latest(read: Callable[[GpuSample], float | None]) -> Reader:
    return _present(lambda gpu: None if gpu.latest is None else read(gpu.latest))


def _detail(read: Callable[[GpuDetails], float | None]) -> Reader:
    return _latest(lambda sample: None if sample.details is None else read(sample.details))


def _activity(read: Callable[[ActivitySample], float | None]) -> Reader:
    return _latest(lambda sample: None if sample.activity is None else read(sample.activity))


def _run(read: Callable[[RunState], float | None]) -> Reader:
    return lambda view: (((run.run,), read(run)) for run in view.runs)


def _collector(read: Callable[[CollectorState], float]) -> Reader:
    return lambda view: (((collector.name,), read(collector)) for collector in view.collectors)


def _gaps(totals: GpuTotals) -> HistogramValue:
    gaps = totals.gaps
    counts = gaps.bucket_counts or (0,) * len(GAP_BUCKETS_SECONDS)
    return HistogramValue(counts, gaps.count, seconds(gaps.total_ns))


def _resolution_s(gpu: GpuState) -> float | None:
    return None if gpu.resolution_ns is None else seconds(gpu.resolution_ns)


def _starved_now(gpu: GpuState) -> float | None:
    return None if gpu.device.mig_enabled else int(gpu.totals.starved_now)


def _under_filled(gpu: GpuState) -> float | None:
    is_known = gpu.fill is not None and gpu.fill.evidence is not None
    return int(gpu.under_filled_now) if is_known else None


def _first_input_wait_s(run: RunState) -> float | None:
    return None if run.first_input_wait_ns is None else seconds(run.first_input_wait_ns)


def _ratio_changes(run: RunState) -> float | None:
    return run.ratio_changes if run.shares or run.ratio_changes else None


# -- more labels than one -------------------------------------------------------


def _gpu_info(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        device = gpu.device
        names = (device.name, device.pci_bus_id, device.driver_version)
        yield (device.uuid, device.label, *names), 1


def _mig_info(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        device = gpu.device
        if device.parent_uuid is not None:
            numbers = (device.gpu_instance, device.compute_instance)
            yield (device.uuid, device.parent_uuid, *numbers), 1


def _idle_by_cause(view: MetricView) -> Iterator[Row]:
    # All causes from the start: a series that begins in mid-stall hides its first rise from rate().
    for gpu in view.gpus_counted():
        idle_ns = gpu.totals.idle_ns
        yield from (
            ((gpu.device.uuid, cause.value), seconds(idle_ns.get(cause, 0))) for cause in CAUSES
        )


def _input_wait_by_reason(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_counted():
        for reason, waited_ns in sorted(gpu.totals.input_wait_by_reason_ns.items()):
            yield (gpu.device.uuid, reason), seconds(waited_ns)


def _details(view: MetricView) -> Iterator[tuple[str, GpuDetails]]:
    for gpu in view.gpus_present():
        if gpu.latest is not None and gpu.latest.details is not None:
            yield gpu.device.uuid, gpu.latest.details


def _throttled(view: MetricView) -> Iterator[Row]:
    # Every reason, where the board answers at all: a series that comes and goes cannot be averaged.
    for uuid, details in _details(view):
        reasons = details.throttle_reasons
        if reasons is not None:
            yield from (
                ((uuid, reason), int(reason in reasons)) for reason in THROTTLE_REASONS.values()
            )


def _ecc_errors(view: MetricView) -> Iterator[Row]:
    for uuid, details in _details(view):
        yield (uuid, "corrected"), details.ecc_corrected_errors
        yield (uuid, "uncorrected"), details.ecc_uncorrected_errors


def _xid_errors(view: MetricView) -> Iterator[Row]:
    # Of a lost GPU, too: its last error is often why it is lost.
    for gpu in view.gpus:
        if gpu.listed:
            errors = gpu.xid_errors[:MAX_XIDS]
            yield from (((gpu.device.uuid, xid), count) for xid, count in errors)


def _run_info(view: MetricView) -> Iterator[Row]:
    for run in view.runs:
        yield (run.run, run.job, run.rank, run.framework, run.pid), 1


def _phase_seconds(view: MetricView) -> Iterator[Row]:
    for run in view.runs:
        for phase in PHASES:
            if phase in run.phase_ns:
                yield (run.run, phase.value), seconds(run.phase_ns[phase])


def _phase_now(view: MetricView) -> Iterator[Row]:
    for run in view.runs_now():
        yield from (((run.run, phase.value), int(run.phase is phase)) for phase in PHASES)


def _shares(view: MetricView) -> Iterator[Row]:
    for run in view.runs_now():
        yield from (((run.run, uuid), share) for uuid, share in run.shares.items())


def _rings_left_out(view: MetricView) -> Iterator[Row]:
    for uid, count in () if view.state is None else view.state.rings_left_out:
        yield ("_other" if uid is None else uid,), count


def _last_sample_timestamps(view: MetricView) -> Iterator[Row]:
    if view.state is None:
        return
    for gpu in view.gpus:
        if gpu.last_sample_at_ns is not None and gpu.listed:
            age_ns = view.state.taken_at_ns - gpu.last_sample_at_ns
            yield (gpu.device.uuid,), view.state.wall_time_s - seconds(age_ns)


READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "gpumon_build_info": lambda view: [((view.version,), 1)],
        "gpumon_gpu_observed_seconds_total": _total(lambda totals: seconds(totals.observed_ns)),
        "gpumon_gpu_busy_seconds_total": _total(lambda totals: seconds(totals.busy_ns)),
        "gpumon_gpu_idle_seconds_total": _idle_by_cause,
        "gpumon_gpu_idle_pending_seconds": _total(lambda totals: seconds(totals.pending_ns)),
        "gpumon_gpu_starved_seconds_total": _total(lambda totals: seconds(totals.starved_ns)),
        "gpumon_gpu_suspected_seconds_total": _total(lambda totals: seconds(totals.suspected_ns)),
        "gpumon_gpu_input_wait_seconds_total": _input_wait_by_reason,
        "gpumon_gpu_starvation_episodes_total": _total(lambda totals: totals.episodes),
        "gpumon_gpu_claims_refused_total": _counted(lambda gpu: gpu.claims_refused),
        "gpumon_gpu_idle_gap_seconds": _total(_gaps),
        "gpumon_gpu_info": _gpu_info,
        "gpumon_gpu_mig_info": _mig_info,
        "gpumon_gpu_starved": _present(_starved_now),
        "gpumon_gpu_under_filled": _present(_under_filled),
        "gpumon_gpu_sample_resolution_seconds": _present(_resolution_s),
        "gpumon_gpu_utilization_ratio": _latest(lambda sample: sample.utilization_ratio),
        "gpumon_gpu_memory_used_bytes": _latest(lambda sample: sample.memory_used_bytes),
        "gpumon_gpu_memory_capacity_bytes": _present(lambda gpu: gpu.device.memory_capacity_bytes),
        "gpumon_gpu_power_watts": _latest(lambda sample: sample.power_watts),
        "gpumon_gpu_energy_joules_total": _latest(lambda sample: sample.energy_joules),
        "gpumon_gpu_temperature_celsius": _latest(lambda sample: sample.temperature_celsius),
        "gpumon_gpu_sm_clock_hertz": _latest(lambda sample: sample.sm_clock_hertz),
        "gpumon_gpu_throttled": _throttled,
        "gpumon_gpu_power_limit_watts": _detail(lambda told: told.power_limit_watts),
        "gpumon_gpu_memory_clock_hertz": _detail(lambda told: told.memory_clock_hertz),
        "gpumon_gpu_sm_clock_max_hertz": _detail(lambda told: told.sm_clock_max_hertz),
        "gpumon_gpu_performance_state": _detail(lambda told: told.performance_state),
        "gpumon_gpu_persistence_mode": _detail(lambda told: told.persistence_mode),
        "gpumon_gpu_ecc_errors_total": _ecc_errors,
        "gpumon_gpu_xid_errors_total": _xid_errors,
        "gpumon_gpu_sm_active_ratio": _activity(lambda seen: seen.sm_active_ratio),
        "gpumon_gpu_sm_occupancy_ratio": _activity(lambda seen: seen.sm_occupancy_ratio),
        "gpumon_gpu_tensor_active_ratio": _activity(lambda seen: seen.tensor_active_ratio),
        "gpumon_gpu_memory_bandwidth_ratio": _activity(lambda seen: seen.memory_bandwidth_ratio),
        "gpumon_gpu_fan_speed_ratio": _detail(lambda told: told.fan_speed_ratio),
        "gpumon_gpu_encoder_ratio": _detail(lambda told: told.encoder_ratio),
        "gpumon_gpu_decoder_ratio": _detail(lambda told: told.decoder_ratio),
        "gpumon_gpu_pcie_transmitted_bytes_per_second": _detail(
            lambda told: told.pcie_transmitted_bytes_per_second
        ),
        "gpumon_gpu_pcie_received_bytes_per_second": _detail(
            lambda told: told.pcie_received_bytes_per_second
        ),
        "gpumon_gpu_nvlink_transmitted_bytes_per_second": _detail(
            lambda told: told.nvlink_transmitted_bytes_per_second
        ),
        "gpumon_gpu_nvlink_received_bytes_per_second": _detail(
            lambda told: told.nvlink_received_bytes_per_second
        ),
        "gpumon_training_run_info": _run_info,
        "gpumon_training_phase_seconds_total": _phase_seconds,
        "gpumon_training_phase": _phase_now,
        "gpumon_training_steps_total": _run(lambda run: run.steps),
        "gpumon_training_first_input_wait_seconds_total": _run(_first_input_wait_s),
        "gpumon_training_samples_total": _run(lambda run: run.samples),
        "gpumon_training_epoch": lambda view: (((run.run,), run.epoch) for run in view.runs_now()),
        "gpumon_training_share_ratio": _shares,
        "gpumon_training_ratio_changes_total": _run(_ratio_changes),
        "gpumon_nvml_call_seconds_total": lambda view: (
            ((name,), spent_s) for name, spent_s in view.call_seconds
        ),
        "gpumon_nvml_calls_total": lambda view: (
            ((name,), calls) for name, calls in view.call_counts
        ),
        "gpumon_nvml_errors_total": lambda view: (
            ((name, code), count) for name, code, count in view.call_errors
        ),
        "gpumon_samples_total": lambda view: (
            [] if view.state is None else [((), view.state.samples_total)]
        ),
        "gpumon_samples_missed_total": lambda view: (
            [] if view.state is None else [((), view.state.missed_total)]
        ),
        "gpumon_last_sample_timestamp_seconds": _last_sample_timestamps,
        "gpumon_phase_rings_left_out": _rings_left_out,
        "gpumon_collector_duration_seconds": _collector(lambda one: one.duration_seconds),
        "gpumon_collector_errors_total": _collector(lambda one: one.errors_total),
        "gpumon_collector_success": _collector(lambda one: int(one.success)),
    }
)
"""Reader of each family by its full name; ``prometheus`` itself tells what it refused."""
