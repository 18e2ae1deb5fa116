"""The lost time of one run by reason: each sample covers its own second."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.settings.host import DEFAULT_HOST_SETTINGS, HostSettings
from gpumon.core.waits.evidence import HostEvidence
from gpumon.core.waits.wait_rules import (
    LoaderPlace,
    ShortOf,
    WaitDiagnosis,
    active_tasks,
    diagnose_wait,
    locked_ratio,
)

WITH_REASONS: Final = (IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP)
"""Causes that have reasons which the machine shows."""
_MORE_SAMPLES: Final = 4
"""Additional samples: some fall into the steps of a run and do not show its loader."""
_MAX_SAMPLES: Final = 4_096
"""Kept until their time is settled: an hour of them where a GPU is never read."""


class WaitFigures(NamedTuple):
    """What was measured where a reason held: means over its samples, else as in ``HostEvidence``.

    Attributes:
        tasks: How many tasks of the loader wanted a part of a core.
        wanted_cores: What they wanted together.
        given_cores: What they got.
        locked_ratio: The part of its worker processes that slept in a lock; ``None``: unknown.
    """

    tasks: float
    wanted_cores: float
    given_cores: float
    usable_cores: float | None
    read_bytes_per_second: float | None
    major_faults_per_second: float | None
    disk_busy_ratio: float | None
    received_bytes_per_second: float | None
    memory_stalled_ratio: float | None
    throttled_ratio: float | None
    locked_ratio: float | None = None


class WaitReason(NamedTuple):
    """Time that the GPUs of a run lost for one reason.

    Attributes:
        cause: Whose reason it is: of ``WITH_REASONS``.
        waited_ns: Idle time of the GPUs of the run, added up.
        confidence: The part, 0 to 1, of the sampled time of that cause with this reason;
            ``None``: unknown.
        place: Where the batches were made when it last held; ``None``: not visible.
        short_of: What there is too little of, where computing holds the loader up.
        also: Reasons that held at the same time.
        figures: ``None``: not measured.
    """

    cause: IdleCause
    reason: InputWaitReason
    waited_ns: int
    confidence: float | None = None
    place: LoaderPlace | None = None
    short_of: ShortOf | None = None
    also: tuple[InputWaitReason, ...] = ()
    figures: WaitFigures | None = None


class _Sample(NamedTuple):
    start_ns: int
    end_ns: int
    diagnosis: WaitDiagnosis
    figures: WaitFigures

    def reason_of(self, cause: IdleCause) -> InputWaitReason:
        if cause is IdleCause.INPUT_WAIT:
            return self.diagnosis.reasons[0]
        is_gil = self.diagnosis.is_gil_bound
        return InputWaitReason.GIL_BOUND if is_gil else InputWaitReason.UNKNOWN


_SAMPLE_END: Final = attrgetter("end_ns")


@dataclass(slots=True)
class _Sum:
    """The settled time of one reason of one cause."""

    waited_ns: int = 0
    sampled_ns: int = 0
    newest: _Sample | None = None
    also: set[InputWaitReason] = field(default_factory=set)
    # By name of the figure: its sum over time, and the time of the samples that had it.
    figures: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, sample: _Sample, waited_ns: int) -> None:
        self.waited_ns += waited_ns
        self.sampled_ns += waited_ns
        self.newest = sample
        self.also.update(sample.diagnosis.reasons[1:])
        for name, value in zip(WaitFigures._fields, sample.figures, strict=True):
            if value is not None:
                total, of_ns = self.figures.get(name, (0.0, 0))
                self.figures[name] = total + value * waited_ns, of_ns + waited_ns

    def means(self) -> WaitFigures:
        # Most are zero: one object for all of these, because there may be hundreds of runs.
        known = {
            name: total / of_ns or 0.0 for name, (total, of_ns) in self.figures.items() if of_ns
        }
        return WaitFigures(**{**dict.fromkeys(WaitFigures._fields), **known})  # type: ignore[arg-type]


class RunReasons:
    """Splits the lost time of a run by reason, as its samples show it."""

    def __init__(self, settings: HostSettings = DEFAULT_HOST_SETTINGS) -> None:
        self._settings = settings
        self._recent: deque[HostEvidence] = deque(maxlen=_MORE_SAMPLES * settings.remembered_looks)
        self._samples: list[_Sample] = []
        self._sums: dict[tuple[IdleCause, InputWaitReason], _Sum] = {}

    def observe(self, evidence: HostEvidence) -> None:
        """Add one sample, oldest first."""
        settings = self._settings
        if self._recent and evidence.start_ns - self._recent[-1].end_ns > settings.look_ns:
            self._recent.clear()  # what it did before it stopped waiting is no evidence now
        self._recent.append(evidence)
        diagnosis = diagnose_wait(tuple(self._recent), settings)
        active = active_tasks(diagnosis.place, evidence, settings)
        figures = WaitFigures(
            tasks=len(active),
            wanted_cores=sum(task.wanted_cores for task in active),
            given_cores=sum(task.on_cpu_cores for task in active),
            usable_cores=evidence.usable_cores,
            read_bytes_per_second=evidence.read_bytes_per_second,
            major_faults_per_second=evidence.major_faults_per_second,
            disk_busy_ratio=evidence.disk_busy_ratio,
            received_bytes_per_second=evidence.received_bytes_per_second,
            memory_stalled_ratio=evidence.memory_stalled_ratio,
            throttled_ratio=evidence.throttled_ratio,
            locked_ratio=locked_ratio(evidence),
        )
        # No sample covers more time than one may stand for.
        start_ns = max(evidence.start_ns, evidence.end_ns - settings.look_ns)
        if self._samples:
            start_ns = max(start_ns, self._samples[-1].end_ns)
        if start_ns < evidence.end_ns:
            self._samples.append(_Sample(start_ns, evidence.end_ns, diagnosis, figures))
            del self._samples[:-_MAX_SAMPLES]

    def forget_before(self, time_ns: int) -> None:
        if self._recent and time_ns - self._recent[-1].end_ns > self._settings.look_ns:
            self._recent.clear()  # as the next sample would
        if self._samples:
            del self._samples[: bisect_right(self._samples, time_ns, key=_SAMPLE_END)]

    def split(
        self, cause: IdleCause, start_ns: int, end_ns: int, lost_ns: int
    ) -> dict[InputWaitReason, int]:
        """Why time was lost between two instants: by reason; sums to ``lost_ns``.

        Args:
            cause: One of ``WITH_REASONS``.
            start_ns: CLOCK_MONOTONIC.
            end_ns: CLOCK_MONOTONIC, later.
            lost_ns: How much of the time between was lost to the cause.
        """
        by_reason: dict[InputWaitReason, int] = {}
        left_ns = lost_ns
        samples = self._samples
        first = bisect_right(samples, start_ns, key=_SAMPLE_END) if samples else 0
        for sample in samples[first:]:
            inside_ns = min(sample.end_ns, end_ns) - max(sample.start_ns, start_ns)
            if inside_ns <= 0:
                break
            part_ns = lost_ns * inside_ns // (end_ns - start_ns)
            reason = sample.reason_of(cause)
            by_reason[reason] = by_reason.get(reason, 0) + part_ns
            self._sums.setdefault((cause, reason), _Sum()).add(sample, part_ns)
            left_ns -= part_ns
        if left_ns:
            unknown = InputWaitReason.UNKNOWN
            by_reason[unknown] = by_reason.get(unknown, 0) + left_ns
            unsampled = self._sums.get((cause, unknown))
            if unsampled is None:
                unsampled = self._sums[cause, unknown] = _Sum()
            unsampled.waited_ns += left_ns
        return by_reason

    def report(self) -> tuple[WaitReason, ...]:
        """The reasons so far, the most time first; empty without a sample."""
        if all(found.newest is None for found in self._sums.values()):
            return ()
        reasons = [
            self._reason(*key, found) for key, found in self._sums.items() if found.waited_ns
        ]
        return tuple(sorted(reasons, key=lambda one: -one.waited_ns))

    def _reason(self, cause: IdleCause, reason: InputWaitReason, found: _Sum) -> WaitReason:
        sample = found.newest
        if sample is None:
            return WaitReason(cause, reason, found.waited_ns)
        figures = found.means()
        if reason is InputWaitReason.UNKNOWN:
            return WaitReason(cause, reason, found.waited_ns, figures=figures)
        sampled_ns = sum(one.sampled_ns for key, one in self._sums.items() if key[0] is cause)
        queued = figures.wanted_cores - figures.given_cores
        has_cores = queued <= self._settings.queued_share * figures.wanted_cores
        return WaitReason(
            cause,
            reason,
            found.waited_ns,
            confidence=found.sampled_ns / sampled_ns if sampled_ns else None,
            place=sample.diagnosis.place,
            short_of=(ShortOf.WORKERS if has_cores else ShortOf.CORES)
            if reason is InputWaitReason.CPU_BOUND
            else None,
            also=tuple(one for one in InputWaitReason if one in found.also - {reason}),
            figures=figures,
        )
