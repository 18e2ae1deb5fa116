"""A finished log, read once from front to end, as a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from gpumon.core.clock import seconds
from gpumon.core.judge.advice import advise
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.log.activity import MOST_CHANGES, ChangeRoom
from gpumon.core.log.common_pauses import Together, together
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import GpuReport, Report, sampling_of
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.wording import counted, in_time, listed
from gpumon.pipeline.log_track import LONGEST_WINDOW_NS, GpuTrack, PeriodTimes
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample

_HEAD_ROOM_NS: Final = 1 << 55
"""Stamps are counted from about a year before the log's first: the detector's clock, like any
monotonic one, has no time before 0, and a relative log's first sample begins before its 0."""


class LogAnalysis:
    """Settles the rows of one log, GPU by GPU.

    Memory does not grow with the log but for where GPUs began and ceased to
    work: 8 bytes a change, up to ``MOST_CHANGES``.

    Args:
        period_ns: Time between two rows of one GPU, where the user knows it;
            ``None``: as the stamps say.
    """

    def __init__(self, settings: DetectorSettings, period_ns: int | None = None) -> None:
        self._settings = settings
        self._period_ns = period_ns
        self._room = ChangeRoom()
        self._tracks: list[GpuTrack] = []
        self._shown: list[GpuTrack] = []
        self._zero_ns: int | None = None

    def take(self, samples: Iterable[LogSample]) -> None:
        """Settle rows in file order, to the end of the log.

        Raises:
            UnreadableLogError: The log cannot be read on.
        """
        tracks = self._tracks
        for gpu, stamp_ns, busy_ratio, used_bytes in samples:
            if self._zero_ns is None:
                self._zero_ns = stamp_ns - _HEAD_ROOM_NS
            while gpu >= len(tracks):
                tracks.append(GpuTrack(self._settings, self._period_ns, self._room))
                for track in tracks:
                    track.share_memory(1 << len(tracks).bit_length())
            tracks[gpu].take(stamp_ns - self._zero_ns, busy_ratio, used_bytes)
        for track in tracks:
            track.finish()

    def report(self, source: str, facts: LogFacts) -> Report:
        """What the log of that name says, and what its reader knows now that it is read."""
        named = _in_order(facts.gpus, self._tracks)
        self._shown = tracks = [track for _, _, track in named]
        origin_ns = min(track.first_ns or 0 for track in tracks)
        times = PeriodTimes().merge(track.times for track in tracks)
        period_ns = times.usual_ns or min(track.period_ns for track in tracks)
        joined = self._together(tracks)
        beside_ns: Sequence[int | None] = (
            joined.idle_beside_peer_ns if joined is not None else [None] * len(named)
        )
        parents = {index: gpu.uuid for index, gpu, _ in named if gpu.mig_index is None}
        gpus = tuple(
            GpuReport(
                index=index,
                uuid=gpu.uuid,
                name=gpu.name,
                totals=(totals := track.ledger.snapshot()),
                verdict=judge(totals, self._settings),
                mig_enabled=gpu.mig_enabled,
                mig_index=gpu.mig_index,
                parent_uuid=parents.get(index) if gpu.mig_index is not None else None,
                idle_beside_peer_ns=idle_beside_peer_ns,
                held_memory=track.held,
            )
            for (index, gpu, track), idle_beside_peer_ns in zip(named, beside_ns, strict=True)
        )
        dropped = sum(track.dropped + track.ledger.rejected for track in self._tracks)
        return Report(
            source=source,
            simulated=False,
            started_at=facts.clock.iso(origin_ns + (self._zero_ns or 0)),
            origin_ns=origin_ns,
            observed_ns=max(gpu.totals.observed_ns for gpu in gpus),
            period_ns=period_ns,
            skipped_lines=facts.skipped_lines + dropped,
            gpus=gpus,
            runs=(),
            advice=advise(gpus, ()),
            notes=(*facts.notes, *self._notes(gpus, times, dropped)),
            together=joined,
            sampling=sampling_of(period_ns, self._settings),
        )

    def lanes(self) -> Lanes:
        """How busy each GPU of the report was, in its order and on its clock."""
        return Lanes(tuple(track.lane.snapshot() for track in self._shown))

    def _together(self, tracks: Sequence[GpuTrack]) -> Together | None:
        if len(tracks) < 2 or self._room.is_full:
            return None
        # Rows may come quicker than the driver's windows, which begin when they like on each GPU.
        longest_ns = max(LONGEST_WINDOW_NS, *(track.times.usual_ns for track in tracks))
        return together([track.changes for track in tracks], tolerance_ns=longest_ns // 2)

    def _notes(self, gpus: Sequence[GpuReport], times: PeriodTimes, dropped: int) -> Iterator[str]:
        tracks = self._shown
        if dropped:
            yield f"Dropped {counted(dropped, 'row', 'rows')} whose time did not rise."
        holes = sum(track.holes for track in tracks)
        if holes:
            lost_s = seconds(sum(track.holes_ns for track in tracks))
            yield (
                f"Not observed: {lost_s:,.1f} s in {counted(holes, 'hole', 'holes')} "
                "without a line. They are in no sum."
            )
        if any(track.period_is_assumed for track in tracks):
            yield "Too few lines to tell the time between two: 1 s assumed."
        told = times.worth_telling()
        if len(told) > 1:
            parts = [f"{in_time(period_ns)} for {in_time(time_ns)}" for period_ns, time_ns in told]
            yield f"The time between two lines is not always the same: {listed(parts)} of GPU time."
        if len(tracks) > 1 and self._room.is_full:
            yield (
                f"The GPUs began or ceased to work more than {MOST_CHANGES:,} times: what they did "
                "at the same time is not told."
            )
        merged = sum(gpu.totals.merged_intervals for gpu in gpus)
        if merged:
            yield (
                f"{merged} starved intervals were merged with a neighbour; no sum is changed by it."
            )


def _in_order(
    gpus: Sequence[LoggedGpu], tracks: Sequence[GpuTrack]
) -> list[tuple[int, LoggedGpu, GpuTrack]]:
    """The GPUs that have a row, with their indices; a MIG instance comes after its GPU."""
    named = [
        (position if gpu.index is None else gpu.index, gpu, track)
        for position, (gpu, track) in enumerate(zip(gpus, tracks, strict=False))
        if track.first_ns is not None
    ]
    named.sort(key=lambda one: -1 if one[1].mig_index is None else one[1].mig_index)
    return sorted(named, key=itemgetter(0))
