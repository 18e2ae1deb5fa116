"""A finished log, read once from front to end, as a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from gpumon.core.advice import advise
from gpumon.core.ledger import GpuLedger
from gpumon.core.report import GpuReport, Report
from gpumon.core.sample import BusySample
from gpumon.core.settings import DetectorSettings
from gpumon.core.units import NS_PER_S, seconds
from gpumon.core.verdicts import judge
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample

_PERIOD_SAMPLES: Final = 64
"""First rows of a GPU from which its period is taken."""
_BATCH_SAMPLES: Final = 2_048
"""Samples settled at once: the detector's cost of a call is shared by many."""
_HOLE_PERIODS: Final = 2.5
"""A silence longer than that is not observed: nobody knows what the GPU did."""
_HEAD_ROOM_NS: Final = 1 << 55
"""Stamps are counted from about a year before the log's first: the detector's clock, like any
monotonic one, has no time before 0, and a relative log's first sample begins before its 0."""


class LogAnalysis:
    """Settles the rows of one log, GPU by GPU. Memory does not grow with the log.

    Args:
        settings: Thresholds of the detector.
        period_ns: Time between two rows of one GPU, where the user knows it;
            ``None``: as the stamps say.
    """

    def __init__(self, settings: DetectorSettings, period_ns: int | None = None) -> None:
        self._settings = settings
        self._period_ns = period_ns
        self._tracks: list[_GpuTrack] = []
        self._zero_ns: int | None = None

    def take(self, samples: Iterable[LogSample]) -> None:
        """Settle rows in file order, to the end of the log.

        Raises:
            UnreadableLogError: The log cannot be read on.
        """
        tracks = self._tracks
        zero_ns = 0
        for gpu, stamp_ns, busy_ratio, _ in samples:
            if self._zero_ns is None:
                self._zero_ns = zero_ns = stamp_ns - _HEAD_ROOM_NS
            while gpu >= len(tracks):
                tracks.append(_GpuTrack(self._settings, self._period_ns))
            tracks[gpu].take(stamp_ns - zero_ns, busy_ratio)
        for track in tracks:
            track.finish()

    def report(self, source: str, facts: LogFacts) -> Report:
        """What the log says.

        Args:
            source: The log's name.
            facts: What the reader knows of it, now that it is read.
        """
        tracks = [track for track in self._tracks if track.first_ns is not None]
        origin_ns = min(track.first_ns or 0 for track in tracks)
        gpus = tuple(
            _gpu_report(position, gpu, track, self._settings)
            for position, (gpu, track) in enumerate(zip(facts.gpus, self._tracks, strict=False))
            if track.first_ns is not None
        )
        dropped = sum(track.dropped + track.ledger.rejected for track in tracks)
        return Report(
            source=source,
            simulated=False,
            started_at=facts.clock.iso(origin_ns + (self._zero_ns or 0)),
            origin_ns=origin_ns,
            observed_ns=max(gpu.totals.observed_ns for gpu in gpus),
            period_ns=min(track.period_ns for track in tracks),
            skipped_lines=facts.skipped_lines + dropped,
            gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
            runs=(),
            advice=advise(gpus, ()),
            notes=(*facts.notes, *_notes(tracks, dropped), *_merge_notes(gpus)),
        )


@dataclass(slots=True)
class _Hole:
    """Time that a log says nothing about."""

    count: int = 0
    total_ns: int = 0


class _GpuTrack:
    """One GPU of a log: from stamps to the time they speak for."""

    def __init__(self, settings: DetectorSettings, period_ns: int | None) -> None:
        self.ledger = GpuLedger(settings)
        self.first_ns: int | None = None
        self.period_ns = period_ns or 0
        self.period_is_assumed = False
        self.dropped = 0
        self.holes = _Hole()
        self._longest_ns = 0
        self._last_ns = 0
        self._waiting: list[tuple[int, float | None]] = []
        self._batch: list[BusySample] = []

    def take(self, stamp_ns: int, busy_ratio: float | None) -> None:
        if self.first_ns is None:
            self._wait(stamp_ns, busy_ratio)
            return
        silence_ns = stamp_ns - self._last_ns
        if silence_ns <= 0:
            self.dropped += 1
            return
        start_ns = self._last_ns
        self._last_ns = stamp_ns
        if silence_ns > self._longest_ns:
            start_ns = stamp_ns - self.period_ns
            self.holes.count += 1
            self.holes.total_ns += silence_ns - self.period_ns
        if busy_ratio is None:
            return
        self._batch.append(BusySample(start_ns, stamp_ns, busy_ratio))
        if len(self._batch) >= _BATCH_SAMPLES:
            self._settle()

    def finish(self) -> None:
        """The log is over: nothing stays pending."""
        if self.first_ns is None and self._waiting:
            self._begin()
        self._settle()
        self.ledger.end_job()

    def _wait(self, stamp_ns: int, busy_ratio: float | None) -> None:
        self._waiting.append((stamp_ns, busy_ratio))
        if len(self._waiting) >= _PERIOD_SAMPLES:
            self._begin()

    def _begin(self) -> None:
        """Take the period from what was waiting, then take what was waiting."""
        waiting, self._waiting = self._waiting, []
        if not self.period_ns:
            self.period_ns = _usual_interval_ns([stamp_ns for stamp_ns, _ in waiting])
        if not self.period_ns:
            self.period_ns, self.period_is_assumed = NS_PER_S, True
        self._longest_ns = int(self.period_ns * _HOLE_PERIODS)
        self._last_ns = self.first_ns = waiting[0][0] - self.period_ns
        for stamp_ns, busy_ratio in waiting:
            self.take(stamp_ns, busy_ratio)

    def _settle(self) -> None:
        self.ledger.observe(self._batch)
        self._batch.clear()


def _usual_interval_ns(stamps_ns: Sequence[int]) -> int:
    """Median time between two stamps, 0 where none rises."""
    rising: list[int] = []
    last_ns = stamps_ns[0]
    for stamp_ns in stamps_ns[1:]:
        if stamp_ns > last_ns:
            rising.append(stamp_ns - last_ns)
            last_ns = stamp_ns
    return median_low(rising) if rising else 0


def _gpu_report(
    position: int, gpu: LoggedGpu, track: _GpuTrack, settings: DetectorSettings
) -> GpuReport:
    totals = track.ledger.snapshot()
    return GpuReport(
        index=position if gpu.index is None else gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        totals=totals,
        verdict=judge(totals, settings),
    )


def _notes(tracks: Sequence[_GpuTrack], dropped: int) -> tuple[str, ...]:
    notes: list[str] = []
    if dropped:
        notes.append(f"Dropped {_lines(dropped)} whose time did not rise.")
    holes = sum(track.holes.count for track in tracks)
    if holes:
        lost_s = seconds(sum(track.holes.total_ns for track in tracks))
        notes.append(
            f"Not observed: {lost_s:,.1f} s in {holes} {'hole' if holes == 1 else 'holes'} "
            "without a line. They are in no sum."
        )
    if any(track.period_is_assumed for track in tracks):
        notes.append("Too few lines to tell the time between two: 1 s assumed.")
    return tuple(notes)


def _merge_notes(gpus: Sequence[GpuReport]) -> tuple[str, ...]:
    merged = sum(gpu.totals.merged_intervals for gpu in gpus)
    if not merged:
        return ()
    return (f"{merged} starved intervals were merged with a neighbour; no sum is changed by it.",)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"
