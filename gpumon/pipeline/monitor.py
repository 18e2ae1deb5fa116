"""Turn what was read in one tick into the next ``MonitorState``, without a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.reading import Reading
from gpumon.core.report.report import JobKey
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.core.sample import Frame, GpuSample, Tick, fault_sentence
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.stacks.place import place_of
from gpumon.core.stacks.reading import StacksReading
from gpumon.core.state import HOST, RINGS, CollectorState, GpuState, MonitorState, SettledTime
from gpumon.pipeline.gpu_tracker import GpuTracker
from gpumon.pipeline.late_ranks import LateRanks
from gpumon.pipeline.run_registry import RunRegistry

_KEEP_BEHIND_NS = 5 * NS_PER_S
_MAX_BEHIND_NS = 120 * NS_PER_S
_MAX_PEERS = 7
"""ours: the others of a machine with eight GPUs, so that 64 cost eight times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorFacts:
    """Constants of a monitor.

    Attributes:
        source: The ``--source`` argument.
        source_kind: Its part before the colon: the collector's name.
        simulated: Whether the GPUs are simulated.
        period_ns: Time between two ticks.
        boot_id: Kernel boot id.
        started_wall_time_s: Seconds since the epoch when observation began.
        replayed: Whether a recording is played.
    """

    source: str
    source_kind: str
    simulated: bool
    period_ns: int
    boot_id: str
    started_wall_time_s: float
    replayed: bool = False


class Monitor:
    """Tracks every GPU and every run."""

    def __init__(
        self,
        facts: MonitorFacts,
        settings: DetectorSettings = DEFAULT_SETTINGS,
        *,
        user_name: Callable[[int], str] | None = None,
    ) -> None:
        """Watch a machine; ``user_name`` names a user by uid, ``None``: users are not named."""
        self._facts = facts
        self._user_name = user_name
        self._users: dict[int, str] | None = None if user_name is None else {}
        self._silence_ns = 2 * facts.period_ns + facts.period_ns // 2
        self._settings = settings
        self._gpus: dict[str, GpuTracker] = {}
        self._runs = RunRegistry(simulated=facts.simulated, user_name=user_name)
        self._late_ranks = LateRanks(settings)
        self._has_listed_process = False  # whether the driver ever listed one
        self._began_ns: int | None = None
        self._needed_ns = 0  # phases before are forgotten
        self._samples_total = self._missed_total = 0
        self._source_errors = self._rejected = 0
        self._source_message: str | None = None
        self._source_trouble: str | None = None
        self._host_message: str | None = None
        self._newest = Frame(taken_at_ns=0, gpus=())
        self._had_runs = False
        self._gpu_states: tuple[GpuState, ...] = ()
        self._source_collector = CollectorState(facts.source_kind, True, 0.0, 0, None)

    def ingest(
        self, reading: Reading, more_collectors: tuple[CollectorState, ...] = ()
    ) -> MonitorState:
        """Update with what was read in one tick; return the new state.

        Args:
            reading: Its rings were read after the source, so that the phases during each
                sample are known.
            more_collectors: Collectors outside the pipeline.
        """
        tick, rings = reading.tick, reading.rings
        facts = self._facts
        if self._began_ns is None:
            self._began_ns = tick.at_ns
        self._missed_total += tick.missed_count
        if rings.rings or self._runs.runs:
            newest = [gpu.newest for gpu in self._gpus.values()]
            gpus = tick.frames[-1].gpus if tick.frames else newest
            self._runs.update(
                rings,
                gpus,
                reading.host,
                observed_from_ns=self._began_ns,
                clock_offset_s=reading.wall_time_s - seconds(tick.at_ns),
            )
        self._samples_total += len(tick.frames)
        self._note_stacks(reading.stacks)
        settled: list[SettledTime] = []
        if self._is_quiet(tick):
            self._newest = tick.frames[-1]
            for gpu in self._gpus.values():
                gpu.note_answer(self._newest.taken_at_ns)
        else:
            if tick.frames:
                self._source_trouble = None
            for frame in tick.frames:
                self._ingest_frame(frame)
                self._settle(frame)
            settled = self._pop_settled()
            self._name_users(frame.gpus for frame in tick.frames)
            self._late_ranks.update(tick.at_ns, self._runs.runs, self._gpus)
            self._forget()
            self._gpu_states, self._source_collector = self._gpus_now(tick)
        self._had_runs = bool(self._runs.runs)
        self._host_message = reading.host.message or self._host_message
        rings_collector = CollectorState(
            RINGS, rings.is_whole, reading.rings_seconds, rings.rejected, rings.message
        )
        # A user who hides processes is no failure of gpumon.
        host_collector = CollectorState(
            HOST, True, reading.host.took_seconds, 0, self._host_message
        )
        return MonitorState(
            taken_at_ns=tick.at_ns,
            wall_time_s=reading.wall_time_s,
            started_wall_time_s=facts.started_wall_time_s,
            period_ns=facts.period_ns,
            source=facts.source,
            simulated=facts.simulated,
            boot_id=facts.boot_id,
            gpus=self._gpu_states,
            runs=self._runs.states(self._began_ns),
            collectors=(self._source_collector, rings_collector, host_collector, *more_collectors),
            samples_total=self._samples_total,
            missed_total=self._missed_total,
            call_seconds=self._newest.call_seconds,
            call_counts=self._newest.call_counts,
            replayed=facts.replayed,
            call_errors=self._newest.call_errors,
            rings_left_out=rings.left_out,
            settled=tuple(settled),
            users=self._users,
        )

    def _note_stacks(self, stacks: StacksReading) -> None:
        """Note what stack samples show, before the driver samples of their time are settled."""
        for uuids, sample in stacks.samples:
            place = place_of(sample)
            for gpu in (self._gpus[uuid] for uuid in uuids if uuid in self._gpus):
                gpu.note_stack_sample(sample, place)
        for uuid, gpu in self._gpus.items():
            gpu.stack_pending_from_ns = stacks.pending_from_ns.get(uuid)

    def _is_quiet(self, tick: Tick) -> bool:
        """Whether no GPU can have changed: nothing was read, and there is no run."""
        if self._runs.runs or self._had_runs or tick.error is not None:
            return False
        if any(gpu.defers_samples for gpu in self._gpus.values()):
            return False
        return bool(tick.frames) and all(frame.is_quiet for frame in tick.frames)

    @property
    def has_open_bindings(self) -> bool:
        """Whether a process list may yet decide which GPUs a living run is on."""
        return any(run.needs_process_list for run in self._runs.runs)

    def _ingest_frame(self, frame: Frame) -> None:
        self._rejected, self._newest = self._rejected + frame.rejected, frame
        if frame.trouble is not None:
            self._source_trouble = frame.trouble
        self._has_listed_process = self._has_listed_process or any(
            sample.processes for sample in frame.gpus
        )
        for sample in frame.gpus:
            tracker = self._gpus.get(sample.device.uuid)
            if tracker is None:
                tracker = self._gpus[sample.device.uuid] = GpuTracker(
                    sample, self._settings, counts_users=self._user_name is not None
                )
            tracker.observe(sample, frame.taken_at_ns)
        self._gpus = dict(
            sorted(self._gpus.items(), key=lambda known: known[1].newest.device.sort_key)
        )
        self._note_listed(frame)

    def _note_listed(self, frame: Frame) -> None:
        """Note which GPUs the source no longer lists: one that fails to answer is still listed."""
        listed = {sample.device.uuid for sample in frame.gpus}
        for uuid, gpu in list(self._gpus.items()):
            gpu.note_listed(uuid in listed, frame.taken_at_ns)
            since_ns = gpu.unlisted_since_ns
            if since_ns is None or gpu.newest.device.parent_uuid is None:
                continue
            if frame.taken_at_ns - since_ns > KEEP_ENDED_NS:
                # MIG instances are recreated all day long, each with a new UUID.
                self._rejected += gpu.ledger.rejected
                del self._gpus[uuid]

    def _settle(self, frame: Frame) -> None:
        """Settle a frame once every GPU's sample is known, because a peer's work counts too."""
        for sample in frame.gpus:
            uuid = sample.device.uuid
            self._gpus[uuid].decide(
                self._runs.on(uuid), driver_lists_processes=self._has_listed_process
            )
        busiest_of_job = self._busiest_of_jobs()
        for sample in frame.gpus:
            uuid = sample.device.uuid
            runs = self._runs.on(uuid)
            jobs = {run.job_key for run in runs if run.is_bound_to(uuid)}
            peers: dict[str, GpuTracker] = {}
            for job in jobs:
                others = [one for one in busiest_of_job.get(job, {}).items() if one[0] != uuid]
                peers.update(others[:_MAX_PEERS])
            self._gpus[uuid].settle(runs, [*peers.values()])

    def _pop_settled(self) -> list[SettledTime]:
        each = [gpu.pop_settled() for gpu in self._gpus.values()]
        return [one for one in each if one is not None]

    def _name_users(self, gpus_of_frames: Iterable[tuple[GpuSample, ...]]) -> None:
        """Name the users of all runs and processes."""
        if self._user_name is None or self._users is None:
            return
        uids = {run.reading.owner_uid for run in self._runs.runs}
        for gpu in chain.from_iterable(gpus_of_frames):
            uids.update(process.uid for process in gpu.processes or () if process.uid is not None)
        new = uids.difference(self._users)
        if new:
            self._users = self._users | {uid: self._user_name(uid) for uid in new}

    def _busiest_of_jobs(self) -> dict[JobKey, dict[str, GpuTracker]]:
        """The GPUs that worked most lately for each job of several, by UUID.

        A GPU is compared with the busiest of its peers. With a few candidates, a job of many
        GPUs costs no more for each of them.
        """
        busiest: dict[JobKey, dict[str, GpuTracker]] = {}
        for job, uuids in self._gpus_of_jobs().items():
            if len(uuids) < 2:
                continue
            known = [uuid for uuid in sorted(uuids) if uuid in self._gpus]
            if len(known) > _MAX_PEERS + 1:
                known = nlargest(
                    _MAX_PEERS + 1, known, key=lambda uuid: self._gpus[uuid].peers.worked_ns
                )
            busiest[job] = {uuid: self._gpus[uuid] for uuid in known}
        return busiest

    def _gpus_of_jobs(self) -> dict[JobKey, set[str]]:
        """GPUs that work for each job, including those that have just begun."""
        gpus_of_job: dict[JobKey, set[str]] = {}
        for run in self._runs.runs:
            uuids = gpus_of_job.setdefault(run.job_key, set())
            uuids |= run.used_uuids
            if run.ended_ns is None:
                for uuid in run.wanted_uuids - run.used_uuids:
                    known = uuid in self._gpus and run.is_bound_to(uuid)
                    if known and self._gpus[uuid].is_active_in(run):
                        uuids.add(uuid)
        return gpus_of_job

    def _forget(self) -> None:
        ends_ns = [gpu.ledger.last_end_ns for gpu in self._gpus.values()]
        settled = [end_ns for end_ns in ends_ns if end_ns >= 0]
        if settled:
            # A GPU that is no longer read must not keep all later phases in memory.
            needed_ns = max(min(settled), max(settled) - _MAX_BEHIND_NS) - _KEEP_BEHIND_NS
            for run in self._runs.runs if needed_ns != self._needed_ns else ():
                run.forget_before(needed_ns)
            self._needed_ns = needed_ns

    def _gpus_now(self, tick: Tick) -> tuple[tuple[GpuState, ...], CollectorState]:
        gpus = [*self._gpus.values()]
        samples = [gpu.newest for gpu in gpus]
        errors = [
            tick.error,  # then the others are of an earlier tick
            self._source_trouble,
            *(
                f"GPU {sample.device.label}: {sample.error}"
                for sample in samples
                if sample.error is not None
            ),
            *(
                fault_sentence(sample.device, sample.faults[0])
                for sample in samples
                if sample.faults
            ),
        ]
        message = next((error for error in errors if error is not None), None)
        self._source_message = self._source_message if message is None else message
        self._source_errors += tick.error is not None
        of_calls = (count for _, _, count in self._newest.call_errors)
        counts = (self._rejected, self._source_errors, *of_calls)
        return tuple(gpu.state(tick.at_ns, self._silence_ns) for gpu in gpus), CollectorState(
            name=self._facts.source_kind,
            success=message is None,
            duration_seconds=tick.duration_seconds,
            errors_total=sum(counts) + sum(gpu.ledger.rejected for gpu in gpus),
            message=self._source_message,
        )
