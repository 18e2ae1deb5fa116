"""The report of the last hour, or the last minute: totals are kept, and subtracted when asked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpumon.core.accounting.packed import Packer
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S, nanoseconds, seconds
from gpumon.core.device.troubles import errors_of
from gpumon.core.diagnosis.since import report_since
from gpumon.core.diagnosis.verdict_rules import judge
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.wording import in_time

_DENSE: Final = ((64, 0), (128, 2), (256, 4), (640, 8))
"""Snapshots up to so many seconds old are kept so many seconds apart: the first ones, each tick."""
_DENSE_NS: Final = _DENSE[-1][0] * NS_PER_S
_MOST_OLD: Final = 160
"""Kept of those that are older, the further apart the older they are."""
_THIN_EVERY: Final = 8
"""After so many ticks what is kept is thinned, and packed: one by one takes four times as long."""
_NO_VERDICT: Final = judge(GpuTotals())
"""In place of any: ``report_since`` judges anew."""

RunKey = tuple[str, int]
"""Label and pid."""


class Snapshot(NamedTuple):
    """What a report of the time since is subtracted from.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the tick.
        gpus: Without what only the newest report shows.
    """

    at_ns: int
    gpus: tuple[GpuState, ...]

    def report(self, ended: Collection[RunKey]) -> Report:
        """The part of it that ``report_since`` reads; these runs were over."""
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
            skipped_lines=0, gpus=gpus, runs=tuple(map(_ended_run, ended)), advice=(),
        )  # fmt: skip


class PackedSnapshot(NamedTuple):
    """The same as bytes: of eight GPUs 1.5 KB instead of 25."""

    at_ns: int
    data: bytes


def snapshot_of(state: MonitorState) -> Snapshot:
    """What is kept of a state."""
    return Snapshot(state.taken_at_ns, tuple(_slim(gpu) for gpu in state.gpus))


def _slim(gpu: GpuState) -> GpuState:
    return gpu._replace(
        verdict=_NO_VERDICT,
        totals=gpu.totals.to_subtract,
        unsettled=gpu.unsettled.to_subtract,
        latest=None,
        now=None,
    )


def _ended_run(key: RunKey) -> RunReport:
    return RunReport(
        run=key[0], job="", rank=0, pid=key[1], framework="", steps=0, gpu_uuids=(), wall_ns=0,
        phase_ns={}, alive=False,
    )  # fmt: skip


def report_after(before: Snapshot, now: Report, ended: Collection[RunKey] = ()) -> Report:
    """What came after a snapshot, as of ``now``, without the runs that had ended by then."""
    after = report_since(before.report(ended), now)
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
        self._kept: tuple[Snapshot | PackedSnapshot, ...] = ()
        self._ended_ns: dict[RunKey, int] = {}  # of runs that are listed: since when they are over
        self._packer = Packer()
        self._count = 0

    def keep(self, state: MonitorState) -> None:
        """Keep what later reports need of the newest state."""
        at_ns, was_ns = state.taken_at_ns, self._ended_ns
        ended = {(run.run, run.pid) for run in state.runs if not run.alive}
        if ended != was_ns.keys():
            self._ended_ns = {key: was_ns.get(key, at_ns) for key in ended}
        self._kept = (*self._kept, snapshot_of(state))
        self._count += 1
        if self._count % _THIN_EVERY == 0:
            self._kept = tuple(map(self._packed, _thinned(self._kept)))

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
        before = self._first_within(kept, now, now_ns, wanted_ns)
        ended = [key for key, ended_ns in self._ended_ns.items() if ended_ns <= before.at_ns]
        after = report_after(before, now, ended)
        note = f"This is the last {in_time(after.observed_ns)}"
        if wanted_ns > _DENSE_NS:
            note += ": of what is older than ten minutes, only some moments are kept"
        return replace(after, notes=(*now.notes, f"{note}."))

    def _packed(self, one: Snapshot | PackedSnapshot) -> PackedSnapshot:
        if isinstance(one, PackedSnapshot):
            return one
        return PackedSnapshot(one.at_ns, self._packer.pack(one))

    def _whole(self, one: Snapshot | PackedSnapshot) -> Snapshot:
        if isinstance(one, Snapshot):
            return one
        snapshot: Snapshot = self._packer.unpack(one.data)
        return snapshot

    def _first_within(
        self,
        kept: Sequence[Snapshot | PackedSnapshot],
        now: Report,
        now_ns: int,
        wanted_ns: int,
    ) -> Snapshot:
        """The oldest snapshot since which no GPU was observed for longer than was asked for."""
        observed_ns = {gpu.uuid: gpu.totals.observed_ns for gpu in now.gpus}
        most_ns = wanted_ns + now.period_ns
        for one in kept:
            if one.at_ns < now_ns - wanted_ns:
                continue
            snapshot = self._whole(one)
            if all(
                observed_ns.get(gpu.device.uuid, 0) - gpu.totals.observed_ns <= most_ns
                for gpu in snapshot.gpus
            ):
                return snapshot
        return self._whole(kept[-1])


def _thinned(
    kept: Sequence[Snapshot | PackedSnapshot],
) -> tuple[Snapshot | PackedSnapshot, ...]:
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


def _spaced(
    recent: Sequence[Snapshot | PackedSnapshot], now_ns: int
) -> Iterator[Snapshot | PackedSnapshot]:
    """Of snapshots of the last minutes, those that are kept."""
    last_ns: int | None = None
    for snapshot in recent:
        age_ns = now_ns - snapshot.at_ns
        apart_s = next(apart for age_s, apart in _DENSE if age_ns <= age_s * NS_PER_S)
        if last_ns is None or snapshot.at_ns - last_ns >= apart_s * NS_PER_S:
            yield snapshot
            last_ns = snapshot.at_ns
