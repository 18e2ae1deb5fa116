"""All training runs whose rings exist, with their labels and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from operator import attrgetter

from gpumon.core.clock import seconds
from gpumon.core.report.report import JobKey
from gpumon.core.ring_format.events import RingReading, RingsReading
from gpumon.core.sample import GpuSample
from gpumon.core.state import RunState
from gpumon.core.waits.evidence import HostReading
from gpumon.pipeline.candidate_gpus import CandidateGpus
from gpumon.pipeline.tracked_run import GpuBinding, TrackedRun


class RunRegistry:
    """All runs whose rings exist, matched with the GPUs that they may use."""

    def __init__(self, *, simulated: bool, user_name: Callable[[int], str] | None = None) -> None:
        self._user_name = user_name
        self._simulated = simulated
        self._runs: dict[str, TrackedRun] = {}
        self._runs_on: dict[str, list[TrackedRun]] | None = None  # by UUID, if known
        self._candidate_gpus = CandidateGpus((), simulated=simulated)

    @property
    def runs(self) -> tuple[TrackedRun, ...]:
        return tuple(self._runs.values())

    def update(
        self,
        rings: RingsReading,
        gpus: Sequence[GpuSample],
        host: HostReading,
        *,
        observed_from_ns: int = 0,
        clock_offset_s: float = 0.0,
    ) -> None:
        """Update all runs; those that are no longer listed are forgotten.

        Args:
            rings: Readings of this tick.
            gpus: The newest sample of each GPU.
            host: Host evidence on the runs.
            observed_from_ns: When observation of the GPUs began.
            clock_offset_s: Seconds from CLOCK_MONOTONIC to the wall clock.
        """
        if not self._candidate_gpus.are_of(gpus):
            self._candidate_gpus = CandidateGpus(gpus, simulated=self._simulated)
        listed = {reading.key for reading in rings.rings}
        for key in [key for key in self._runs if key not in listed]:
            del self._runs[key]
            self._runs_on = None
        held_up = self._jobs_held_up(rings, host)
        for reading in rings.rings:
            if reading.key not in self._runs:
                run = self._runs[reading.key] = TrackedRun(reading)
                started_s = clock_offset_s + seconds(run.started_ns)
                run.started_wall_time_s = round(started_s, 3)
                # A run that trained before observation began has had its first batch.
                run.timeline.note_activity(0, observed_from_ns)
                self._join(run)
            else:
                self._update(self._runs[reading.key], reading, host, held_up)
            if reading.key in host.of_run:
                self._runs[reading.key].reasons.observe(host.of_run[reading.key])
        self._give_labels()

    def _update(
        self,
        run: TrackedRun,
        reading: RingReading,
        host: HostReading,
        held_up: Mapping[JobKey, str],
    ) -> None:
        if reading is not run.reading:
            if reading.alive:
                run.is_superseded = False  # it seemed to have ended
            run.update(
                reading,
                host.processes.get(reading.key),
                is_job_held_up=reading.key != held_up.get(run.job_key, reading.key),
            )
        elif run.is_settled:
            return
        self._join(run)

    def _join(self, run: TrackedRun) -> None:
        """Match a run with GPUs, if anything that this depends on has changed."""
        join, reading = self._candidate_gpus, run.reading
        joined_by = (join, reading.facts, reading.alive, reading.host_pid, reading.is_pid_seen)
        if joined_by == run.joined_by and GpuBinding.REFUSED not in run.bindings.values():
            return
        run.joined_by = joined_by
        self._runs_on = None
        wanted = join.gpus_of(reading)
        if reading.ended_ns is not None:
            # Its pid has left the process list, but its last samples are still to come.
            wanted |= run.wanted_uuids
        run.wanted_uuids = wanted
        if reading.facts.on_cpu and not join.is_simulated:
            run.used_uuids &= wanted  # those it seemed to use before
        run.shares = join.shares_of(reading)
        for uuid in join.seen_on(reading) & wanted:
            run.bind(uuid, GpuBinding.SEEN)
        for uuid in run.refused_uuids:
            # A run that begins to use it later counts from then on.
            is_named = join.names(uuid, reading)
            run.bind(uuid, GpuBinding.SEEN if is_named else GpuBinding.REFUSED)

    def _jobs_held_up(self, rings: RingsReading, host: HostReading) -> dict[JobKey, str]:
        """Jobs in which one rank keeps the others from a step, with that rank's ring key."""
        held_up: dict[JobKey, str] = {}
        for reading in rings.rings:
            process, run = host.processes.get(reading.key), self._runs.get(reading.key)
            is_stopped = process is not None and process.is_stopped
            if is_stopped or (run is not None and run.holds_job_up):
                held_up[reading.facts.job, reading.owner_uid] = reading.key
        return held_up

    def on(self, uuid: str) -> tuple[TrackedRun, ...]:
        """Runs that may be on this GPU and that had not ended at its newest sample."""
        if self._runs_on is None:
            self._runs_on = {}
            for run in self._runs.values():
                for wanted in run.wanted_uuids:
                    self._runs_on.setdefault(wanted, []).append(run)
        return tuple(
            run
            for run in self._runs_on.get(uuid, ())
            if uuid in run.wanted_uuids
            and run.bindings.get(uuid) is not GpuBinding.REFUSED
            and (run.ended_ns is None or run.left_ns.get(uuid) != run.ended_ns)
        )

    def states(self, began_ns: int = 0) -> tuple[RunState, ...]:
        """States of all runs, oldest first; observation began at ``began_ns``."""
        labelled = [run for run in self._runs.values() if run.label]
        labelled.sort(key=attrgetter("started_ns", "label"))
        return tuple(run.state(began_ns) for run in labelled)

    def _give_labels(self) -> None:
        """Give each new run a label, which it keeps, so that counters stay with one run.

        An ended run's label passes to a newer run of the same name and user. If the other run
        lives, or is another user's, the new one gets its pid in the label. A ring without a
        living process, which anyone can copy, never gets the name of a living run. Where users
        are named, a run gets its user in the label if another user's has the name.
        """
        new = [run for run in self._runs.values() if run.label is None and not run.is_superseded]
        if not new:
            return
        owners = {run.label: run for run in self._runs.values() if run.label}
        living = {run.reading.facts.run: run for run in self._runs.values() if run.reading.alive}
        for run in sorted(new, key=attrgetter("started_ns")):
            label = next(
                label
                for label in self._possible_labels(run, owners)
                if (label not in owners or _may_follow(run, owners[label]))
                and not (label in living and _is_behind(run, living[label]))
            )
            if label in owners:
                owners[label].label, owners[label].is_superseded = None, True
            owners[label] = run
            run.label = run.time_label = label

    def _possible_labels(self, run: TrackedRun, owners: Mapping[str, TrackedRun]) -> Iterator[str]:
        """Labels for a run, the best first: its name, with its user, or with its pid."""
        name, owner_uid = run.reading.facts.run, run.reading.owner_uid
        yield name
        holder = owners.get(name)
        is_of_another = holder is not None and holder.reading.owner_uid != owner_uid
        if self._user_name is not None and is_of_another:
            yield f"{name}-{self._user_name(owner_uid)}"
        label = f"{name}-{run.reading.host_pid}"
        yield label
        for number in count(2):
            yield f"{label}-{number}"


def _is_behind(run: TrackedRun, living: TrackedRun) -> bool:
    """Whether the run is over, and another user's living run has its name."""
    return not run.reading.alive and living.reading.owner_uid != run.reading.owner_uid


def _may_follow(run: TrackedRun, earlier: TrackedRun) -> bool:
    return not earlier.reading.alive and earlier.reading.owner_uid == run.reading.owner_uid
