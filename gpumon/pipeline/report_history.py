"""The report of the last hour, or the last minute: totals are kept, and subtracted when asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpumon.core.board.troubles import errors_of
from gpumon.core.clock import NS_PER_S, nanoseconds, seconds
from gpumon.core.judge.since import report_since
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.wording import in_time

_DENSE: Final = ((64, 0), (128, 2), (256, 4), (640, 8))
"""Snapshots up to so many seconds old are kept so many seconds apart: the first ones, each tick."""
_DENSE_NS: Final = _DENSE[-1][0] * NS_PER_S
_MOST_OLD: Final = 160
"""Kept of those that are older, the further apart the older they are."""
_THIN_EVERY: Final = 8

RunKey = tuple[str, int]
"""Label and pid."""


class Snapshot(NamedTuple):
    """What a report of the time since is subtracted from.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the tick.
        gpus: Without what only the newest report shows.
        ended: Runs that were over.
    """

    at_ns: int
    gpus: tuple[GpuState, ...]
    ended: frozenset[RunKey]

    def report(self) -> Report:
        """The part of it that ``report_since`` reads."""
        gpus = tuple(
            GpuReport(
                index=gpu.device.index,
                uuid=gpu.device.uuid,
                name=None,
                totals=gpu.totals,
                verdict=gpu.verdict,
                fill=gpu.fill,
                in_job=gpu.in_job,
                told_troubles=tuple(errors_of(gpu.xid_errors, gpu.errors, self.at_ns)),
                unsettled=gpu.unsettled,
            )
            for gpu in self.gpus
        )
        return Report(
            source="", simulated=False, started_at=None, origin_ns=0, observed_ns=0, period_ns=0,
            skipped_lines=0, gpus=gpus, runs=tuple(map(_ended_run, self.ended)), advice=(),
        )  # fmt: skip


def snapshot_of(state: MonitorState) -> Snapshot:
    """What is kept of a state."""
    return Snapshot(
        state.taken_at_ns,
        tuple(_slim(gpu) for gpu in state.gpus),
        frozenset((run.run, run.pid) for run in state.runs if not run.alive),
    )


def _slim(gpu: GpuState) -> GpuState:
    totals = gpu.totals._replace(
        starved_intervals=gpu.totals.starved_intervals[-1:], suspicion=None
    )
    return gpu._replace(totals=totals, latest=None, now=None)


def _ended_run(key: RunKey) -> RunReport:
    return RunReport(
        run=key[0], job="", rank=0, pid=key[1], framework="", steps=0, gpu_uuids=(), wall_ns=0,
        phase_ns={}, alive=False,
    )  # fmt: skip


def report_after(before: Snapshot, now: Report) -> Report:
    """What came after a snapshot, as of ``now``."""
    after = report_since(before.report(), now)
    return replace(
        after,
        origin_ns=before.at_ns,
        started_at=later(now.started_at, before.at_ns - now.origin_ns),
        gpus=tuple(_from(before.at_ns, gpu) for gpu in after.gpus),
    )


def _from(start_ns: int, gpu: GpuReport) -> GpuReport:
    """The same, with intervals that begin no earlier."""
    intervals = tuple(
        span._replace(start_ns=max(span.start_ns, start_ns))
        for span in gpu.totals.starved_intervals
        if span.end_ns > start_ns
    )
    return replace(gpu, totals=gpu.totals._replace(starved_intervals=intervals))


def later(started_at: str | None, by_ns: int) -> str | None:
    """An ISO 8601 time moved on; ``None`` stays ``None``."""
    if started_at is None:
        return None
    return (datetime.fromisoformat(started_at) + timedelta(seconds=seconds(by_ns))).isoformat()


class ReportHistory:
    """Keeps a snapshot of each tick for a minute, and fewer of what is older. Memory is bounded.

    Another thread may ask for a report: what is kept is replaced, never changed.
    """

    def __init__(self) -> None:
        self._kept: tuple[Snapshot, ...] = ()
        self._count = 0

    def keep(self, snapshot: Snapshot) -> None:
        """Keep the newest one."""
        self._kept = (*self._kept, snapshot)
        self._count += 1
        if self._count % _THIN_EVERY == 0:
            self._kept = _thinned(self._kept)

    def since(self, now: Report, now_ns: int, since_s: float) -> Report:
        """The report of the last ``since_s`` seconds, or of a little less; a note says how much.

        Where the daemon is younger than that, it is the whole report.
        """
        wanted_ns = nanoseconds(since_s)
        kept = self._kept
        if not kept or kept[0].at_ns > now_ns - wanted_ns:
            age = in_time(now_ns - now.origin_ns)
            note = f"gpumon started {age} ago: nothing earlier is kept."
            if now.replayed:
                note = f"The recording is {age} long: there is nothing earlier."
            return replace(now, notes=(*now.notes, note))
        after = report_after(_first_within(kept, now, now_ns, wanted_ns), now)
        note = f"This is the last {in_time(after.observed_ns)}"
        if wanted_ns > _DENSE_NS:
            note += ": of what is older than ten minutes, only some moments are kept"
        return replace(after, notes=(*now.notes, f"{note}."))


def _first_within(kept: Sequence[Snapshot], now: Report, now_ns: int, wanted_ns: int) -> Snapshot:
    """The oldest snapshot since which no GPU was observed for longer than was asked for."""
    observed_ns = {gpu.uuid: gpu.totals.observed_ns for gpu in now.gpus}
    most_ns = wanted_ns + now.period_ns
    for snapshot in kept:
        if snapshot.at_ns < now_ns - wanted_ns:
            continue
        if all(
            observed_ns.get(gpu.device.uuid, 0) - gpu.totals.observed_ns <= most_ns
            for gpu in snapshot.gpus
        ):
            return snapshot
    return kept[-1]


def _thinned(kept: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """Without those that lie closer together than their age asks for."""
    now_ns = kept[-1].at_ns
    recent = [one for one in kept if now_ns - one.at_ns <= _DENSE_NS]
    old = [*kept[: len(kept) - len(recent)]]
    while len(old) > _MOST_OLD:
        at_ns = [one.at_ns for one in old]
        closest = min(
            range(1, len(old) - 1),
            key=lambda k: (at_ns[k + 1] - at_ns[k - 1]) / (now_ns - at_ns[k]),
        )
        del old[closest]
    return (*old, *_spaced(recent, now_ns))


def _spaced(recent: Sequence[Snapshot], now_ns: int) -> Iterator[Snapshot]:
    """Of snapshots of the last minutes, those that are kept."""
    last_ns: int | None = None
    for snapshot in recent:
        age_ns = now_ns - snapshot.at_ns
        apart_s = next(apart for age_s, apart in _DENSE if age_ns <= age_s * NS_PER_S)
        if last_ns is None or snapshot.at_ns - last_ns >= apart_s * NS_PER_S:
            yield snapshot
            last_ns = snapshot.at_ns
