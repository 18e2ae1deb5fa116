"""Label values and numbers of all metrics, from one tick's state.

``LabelBudget`` selects what has series. Each family reads the resulting ``MetricView`` with a path
to a number, or a method of the view. ``None`` is *no answer* and gets no series. A GPU that does
not answer loses its present values; a lost or removed one also loses its counters.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.device.driver_codes import MAX_XIDS, THROTTLE_REASONS
from gpumon.core.phase import CAUSES, PHASES
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState
from gpumon.outlets.metrics.first_zero import (
    IDLE,
    INPUT_WAIT,
    NVML_ERROR,
    PHASE,
    RUN,
    THROTTLED,
    SeriesKey,
)
from gpumon.outlets.metrics.gpu_time import (
    OTHERS,
    TimeOfLabel,
    users_present,
)

_SHORTEST_STALE_NS: Final = 2 * NS_PER_S

Labels: TypeAlias = tuple[object, ...]
_Item = TypeVar("_Item")
Labelled: TypeAlias = tuple[tuple[Labels, _Item], ...]
"""Items with their label values, created once for all families."""


@dataclass(frozen=True, kw_only=True)
class MetricView:
    """The parts of one tick's state that may become series; empty before the first tick.

    Attributes:
        gpus: With distinct UUIDs.
        runs: With distinct labels, living ones first.
        collectors: With distinct names.
        call_seconds: With distinct driver functions.
        call_counts: The same functions.
        call_errors: With distinct pairs of driver function and error.
        dropped: ``(family, label sets dropped since the start)``.
        runs_left_out: Runs without series by uid, as ``largest_owners``.
        zeros: Series that are exported as 0 although they are above it.
        time_by_run: Time of all GPUs by the label of a run.
        time_by_user: Time of all GPUs by the name of a user; empty: users are not named.
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
    runs_left_out: tuple[tuple[int | None, int], ...] = ()
    zeros: frozenset[SeriesKey] = frozenset()
    time_by_run: Mapping[str, TimeOfLabel] = field(default_factory=dict)
    time_by_user: Mapping[str, TimeOfLabel] = field(default_factory=dict)
    now_ns: int = 0
    version: str = ""

    @cached_property
    def stale(self) -> bool:
        """Whether the newest tick is too old to show present values."""
        if self.state is None:
            return True
        age_ns = self.now_ns - self.state.taken_at_ns
        return age_ns > max(2 * self.state.period_ns, _SHORTEST_STALE_NS)

    @cached_property
    def gpus_counted(self) -> Labelled[GpuState]:
        """GPUs whose counters are exported: all but lost, removed and MIG-partitioned ones.

        A GPU keeps its counters while the driver hangs, because dashboards look back over them, and
        when it is partitioned after some observation.
        """
        return tuple(((gpu.device.uuid,), gpu) for gpu in self.gpus if is_counted(gpu))

    @cached_property
    def gpus_present(self) -> Labelled[GpuState]:
        """The GPUs that are present in the newest tick; none if it is stale."""
        if self.stale:
            return ()
        return tuple(((gpu.device.uuid,), gpu) for gpu in self.gpus if gpu.present)

    @cached_property
    def samples(self) -> Labelled[GpuSample]:
        """The newest sample of each GPU that is present."""
        found = ((labels, gpu.latest) for labels, gpu in self.gpus_present)
        return tuple((labels, sample) for labels, sample in found if sample is not None)

    @cached_property
    def details(self) -> Labelled[GpuDetails]:
        found = ((labels, sample.details) for labels, sample in self.samples)
        return tuple((labels, details) for labels, details in found if details is not None)

    @cached_property
    def activities(self) -> Labelled[ActivitySample]:
        found = ((labels, sample.activity) for labels, sample in self.samples)
        return tuple((labels, activity) for labels, activity in found if activity is not None)

    @cached_property
    def runs_known(self) -> Labelled[RunState]:
        return tuple(((run.run,), run) for run in self.runs)

    @cached_property
    def runs_now(self) -> Labelled[RunState]:
        """The runs; none if the newest tick is stale."""
        return () if self.stale else self.runs_known

    @cached_property
    def collectors_named(self) -> Labelled[CollectorState]:
        return tuple(((collector.name,), collector) for collector in self.collectors)

    def is_zero(self, kind: str, labels: Labels, name: Hashable) -> bool:
        """Whether this series of a GPU or run is exported as 0 although it is above it."""
        return bool(self.zeros) and (kind, labels[0], name) in self.zeros

    # -- rows of families that need more than a path -----------------------------------

    def starved_now(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_present:
            if not gpu.device.mig_enabled:
                yield labels, gpu.totals.starved_now

    def held_now(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_present:
            if gpu.latest is not None and gpu.latest.processes is not None:
                yield labels, gpu.held is not None

    def under_filled_now(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_present:
            if gpu.fill is not None and gpu.fill.evidence is not None:
                yield labels, gpu.under_filled_now

    def gap_lengths(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_counted:
            gaps = gpu.totals.gaps
            counts = gaps.bucket_counts or (0,) * len(GAP_BUCKETS_SECONDS)
            yield labels, HistogramValue(counts, gaps.count, seconds(gaps.total_ns))

    def ratio_changes(self) -> Iterator[Row]:
        for labels, run in self.runs_known:
            if run.shares or run.ratio_changes:
                is_zero = self.is_zero(RUN, labels, "ratio_changes")
                yield labels, 0 if is_zero else run.ratio_changes

    def build_info(self) -> list[Row]:
        return [((self.version,), 1)]

    def gpu_info(self) -> Iterator[Row]:
        for _, gpu in self.gpus_present:
            device = gpu.device
            names = (device.name, device.pci_bus_id, device.driver_version)
            yield (device.uuid, device.label, *names), 1

    def mig_info(self) -> Iterator[Row]:
        for _, gpu in self.gpus_present:
            device = gpu.device
            if device.parent_uuid is not None:
                numbers = (device.gpu_instance, device.compute_instance)
                yield (device.uuid, device.parent_uuid, *numbers), 1

    def observed(self) -> Iterator[Row]:
        # Without deferred samples: no run has their time yet.
        for labels, gpu in self.gpus_counted:
            yield labels, seconds(gpu.totals.observed_ns - gpu.deferred_ns)

    def busy(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_counted:
            yield labels, seconds(gpu.totals.busy_ns - gpu.deferred_busy_ns)

    def job_info(self) -> Iterator[Row]:
        names = (None if self.state is None else self.state.users) or {}
        present = {uuid for (uuid,), _ in self.gpus_present}
        for (label,), run in self.runs_now:
            user = "" if run.owner_uid is None else names.get(run.owner_uid, "")
            shown = user if user in self.time_by_user or not user else OTHERS
            for uuid in run.gpu_uuids if run.alive else ():
                if uuid in present:
                    yield (uuid, label, run.job_id, shown), 1

    def user_info(self) -> Iterator[Row]:
        if self.state is None or self.stale:
            return
        for uuid, names in users_present(self.state).items():
            shown = {name if name in self.time_by_user else OTHERS for name in names}
            for name in sorted(shown):
                yield (uuid, name), 1

    def idle_by_cause(self) -> Iterator[Row]:
        # Only causes that occurred: most never do.
        for labels, gpu in self.gpus_counted:
            for cause in CAUSES:
                idle_ns = gpu.totals.idle_ns.get(cause, 0)
                if idle_ns:
                    is_zero = self.is_zero(IDLE, labels, cause)
                    yield (*labels, cause.value), 0.0 if is_zero else seconds(idle_ns)

    def seen_by_cause(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_counted:
            for cause, seen_ns in sorted(gpu.totals.seen_ns.items()):
                if seen_ns:
                    is_zero = self.is_zero(IDLE, labels, cause)
                    yield (*labels, cause.value), 0.0 if is_zero else seconds(seen_ns)

    def idle_pending(self) -> Iterator[Row]:
        # With idle time whose series is still 0, so that each scrape adds up.
        for labels, gpu in self.gpus_counted:
            idle_ns = gpu.totals.idle_ns
            hidden = [idle_ns[cause] for cause in idle_ns if self.is_zero(IDLE, labels, cause)]
            deferred_ns = gpu.deferred_ns - gpu.deferred_busy_ns
            yield labels, seconds(gpu.totals.pending_ns - deferred_ns + sum(hidden))

    def input_wait_by_reason(self) -> Iterator[Row]:
        for labels, gpu in self.gpus_counted:
            for reason, waited_ns in sorted(gpu.totals.input_wait_by_reason_ns.items()):
                if waited_ns:
                    is_zero = self.is_zero(INPUT_WAIT, labels, reason)
                    yield (*labels, reason), 0.0 if is_zero else seconds(waited_ns)

    def throttled(self) -> Iterator[Row]:
        # Every reason that ever held: a series that comes and goes cannot be averaged.
        for labels, gpu in self.gpus_present:
            details = None if gpu.latest is None else gpu.latest.details
            held = None if details is None else details.throttle_reasons
            if held is not None:
                for reason in THROTTLE_REASONS.values():
                    if reason in held or reason in gpu.board.throttled_ns:
                        yield (*labels, reason), reason in held

    def throttled_seconds(self) -> Iterator[Row]:
        # Only reasons that ever held: most never do.
        for labels, gpu in self.gpus_counted:
            for reason, held_ns in sorted(gpu.board.throttled_ns.items()):
                is_zero = self.is_zero(THROTTLED, labels, reason)
                yield (*labels, reason), 0.0 if is_zero else seconds(held_ns)

    def energy_by_use(self) -> Iterator[Row]:
        for labels, gpu in self._with_energy:
            energy = gpu.energy
            yield (*labels, "busy"), energy.busy_joules
            yield (*labels, "lost"), energy.lost_joules
            yield (*labels, "not_in_use"), energy.not_in_use_joules

    def energy_pending(self) -> Iterator[Row]:
        for labels, gpu in self._with_energy:
            yield labels, gpu.energy.pending_joules

    @property
    def _with_energy(self) -> Iterator[tuple[Labels, GpuState]]:
        for labels, gpu in self.gpus_counted:
            if gpu.latest is not None and gpu.latest.energy_joules is not None:
                yield labels, gpu

    def ecc_errors(self) -> Iterator[Row]:
        for labels, details in self.details:
            yield (*labels, "corrected"), details.ecc_corrected_errors
            yield (*labels, "uncorrected"), details.ecc_uncorrected_errors

    def xid_errors(self) -> Iterator[Row]:
        # Also of a lost GPU: its last error is often the reason. Never 0 first: one must alert.
        for gpu in self.gpus:
            for xid, count in gpu.xid_errors[:MAX_XIDS] if gpu.listed else ():
                yield (gpu.device.uuid, xid), count

    def nvml_errors(self) -> Iterator[Row]:
        for function, code, count in self.call_errors:
            is_zero = self.is_zero(NVML_ERROR, ("",), (function, code))
            yield (function, code), 0 if is_zero else count

    def run_info(self) -> Iterator[Row]:
        for run in self.runs:
            yield (run.run, run.job, run.rank, run.framework, run.pid), 1

    def phase_seconds(self) -> Iterator[Row]:
        for labels, run in self.runs_known:
            for phase in PHASES:
                phase_ns = run.phase_ns.get(phase, 0)
                if phase_ns:
                    is_zero = self.is_zero(PHASE, labels, phase)
                    yield (*labels, phase.value), 0.0 if is_zero else seconds(phase_ns)

    def phase_now(self) -> Iterator[Row]:
        # Only phases in which it was: a run has all of them only on paper.
        for labels, run in self.runs_now:
            for phase in PHASES:
                is_present = run.phase is phase
                if is_present or run.phase_ns.get(phase):
                    yield (*labels, phase.value), is_present

    def hanging_now(self) -> Iterator[Row]:
        for labels, run in self.runs_now:
            yield labels, run.silence is not None and run.silence.is_hanging

    def shares(self) -> Iterator[Row]:
        for labels, run in self.runs_now:
            for uuid, share in run.shares.items():
                yield (*labels, uuid), share

    def rings_left_out(self) -> Iterator[Row]:
        return _by_owner(() if self.state is None else self.state.rings_left_out)

    def without_series(self) -> Iterator[Row]:
        return _by_owner(self.runs_left_out)

    def last_sample_timestamps(self) -> Iterator[Row]:
        if self.state is None:
            return
        for gpu in self.gpus:
            if gpu.last_sample_at_ns is not None and gpu.listed:
                age_ns = self.state.taken_at_ns - gpu.last_sample_at_ns
                yield (gpu.device.uuid,), self.state.wall_time_s - seconds(age_ns)


def is_counted(gpu: GpuState) -> bool:
    """Whether its counters are exported."""
    is_partitioned = gpu.device.mig_enabled and not gpu.totals.observed_ns
    return gpu.listed and not is_partitioned and (gpu.present or gpu.error is None)


def _by_owner(counts: Iterable[tuple[int | None, int]]) -> Iterator[Row]:
    for uid, count in counts:
        yield ("_other" if uid is None else uid,), count


NOTHING_SELECTED: Final = MetricView()


class HistogramValue(NamedTuple):
    """Cumulative counts below each bound, the number of all, and their sum."""

    bucket_counts: tuple[int, ...]
    gap_count: int
    total: float


Row: TypeAlias = tuple[Labels, float | HistogramValue | None]
Reader: TypeAlias = Callable[[MetricView], Iterable[Row]]


# -- rows by a path to one number --------------------------------------------------


def _of_each(items: Callable[[MetricView], Labelled[Any]]) -> Callable[[str], Reader]:
    """Creates readers of one number of each item: times in seconds."""

    def reader(path: str) -> Reader:
        read = attrgetter(path)
        if path.endswith("_ns"):
            return lambda view: [
                (labels, None if (ns := read(item)) is None else seconds(ns))
                for labels, item in items(view)
            ]
        return lambda view: [(labels, read(item)) for labels, item in items(view)]

    return reader


counted: Final = _of_each(lambda view: view.gpus_counted)
now: Final = _of_each(lambda view: view.gpus_present)
sample: Final = _of_each(lambda view: view.samples)
detail: Final = _of_each(lambda view: view.details)
activity: Final = _of_each(lambda view: view.activities)
run_now: Final = _of_each(lambda view: view.runs_now)
collector: Final = _of_each(lambda view: view.collectors_named)


def activity_seconds(name: str) -> Reader:
    """Reads one of ``ACTIVITIES`` of each GPU."""

    def rows(view: MetricView) -> Iterator[Row]:
        for labels, gpu in view.gpus_counted:
            active_ns = gpu.board.activity_ns.get(name)
            yield labels, None if active_ns is None else seconds(active_ns)

    return rows


def transferred(name: str) -> Reader:
    """Reads one of ``TRANSFERS`` of each GPU."""
    return lambda view: [
        (labels, gpu.board.transferred_bytes.get(name)) for labels, gpu in view.gpus_counted
    ]


def run_counter(name: str) -> Reader:
    """Reads one of ``RUN_COUNTERS``; times in seconds."""
    read = _of_each(lambda view: view.runs_known)(name)
    return lambda view: [
        (labels, 0 if count is not None and view.is_zero(RUN, labels, name) else count)
        for labels, count in read(view)
    ]


def busy_time(name: str) -> Reader:
    """Reads busy time by the label of a run or user."""
    return lambda view: [
        ((label,), seconds(times_ns[None])) for label, times_ns in getattr(view, name).items()
    ]


def idle_time(name: str) -> Reader:
    """Reads idle time by the label of a run or user, and by cause."""
    return lambda view: [
        ((label, cause.value), seconds(times_ns[cause]))
        for label, times_ns in getattr(view, name).items()
        for cause in CAUSES
        if cause in times_ns
    ]


def of_state(name: str) -> Reader:
    """Reads a number of the state, without a label."""
    return lambda view: [] if view.state is None else [((), getattr(view.state, name))]


def listed(path: str) -> Reader:
    """Reads a list of rows: labels, then the number."""
    read = attrgetter(path)
    return lambda view: [(row[:-1], row[-1]) for row in read(view)]
