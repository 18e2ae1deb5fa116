"""A finished log, read once from front to end, as a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from gpumon.core.board.troubles import (
    Trouble,
    ended_in_log,
    error_of,
    failed_in_log,
    lost_in_log,
)
from gpumon.core.clock import seconds
from gpumon.core.judge.advice import advise
from gpumon.core.judge.verdict_rules import has_too_few_samples, judge
from gpumon.core.log.activity import MOST_CHANGES, ChangeRoom
from gpumon.core.log.common_pauses import Together, together
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import GpuReport, Report, sampling_of
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import Verdict, VerdictName
from gpumon.core.wording import counted, in_time, listed
from gpumon.pipeline.log_track import LONGEST_WINDOW_NS, GpuTrack, PeriodTimes
from gpumon.sources.logs.log_sample import (
    LogFacts,
    LoggedError,
    LoggedGpu,
    LogSample,
    Outages,
    RowColumns,
)
from gpumon.sources.logs.stamps.log_clock import LogClock

_HEAD_ROOM_NS: Final = 1 << 55
"""Stamps are counted from about a year before the log's first: the detector's clock, like any
monotonic one, has no time before 0, and a relative log's first sample begins before its 0."""

_A_FEW_ROWS: Final = 4
_ROWS_APART: Final = 1.5
"""So many periods without a row, and one is missing."""
_NEVER_BACK: Final = Outages(0, 0, None)
_UNTIL_THEN: Final[Mapping[VerdictName, str]] = {
    VerdictName.HEALTHY: ", and worked well until then",
    VerdictName.NOT_IN_USE: ", and had nothing to do until then",
}


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
        self.take_blocks(
            [RowColumns(row.gpu, (row.stamp_ns,), (row.busy_ratio,), (row.memory_used_bytes,))]
            for row in samples
        )

    def take_blocks(self, blocks: Iterable[Sequence[RowColumns]]) -> None:
        """The same rows in fewer steps: what comes next of each GPU, to the end of the log.

        Raises:
            UnreadableLogError: The log cannot be read on.
        """
        for block in blocks:
            if self._zero_ns is None and block:
                self._zero_ns = min(rows.stamps_ns[0] for rows in block) - _HEAD_ROOM_NS
            zero_ns = self._zero_ns or 0
            for gpu, stamps_ns, busy_ratios, used_bytes in block:
                on_its_clock_ns = [stamp_ns - zero_ns for stamp_ns in stamps_ns]
                self._track_of(gpu).take_rows(on_its_clock_ns, busy_ratios, used_bytes)
        for track in self._tracks:
            track.finish()

    def _track_of(self, gpu: int) -> GpuTrack:
        tracks = self._tracks
        while gpu >= len(tracks):
            tracks.append(GpuTrack(self._settings, self._period_ns, self._room))
            for track in tracks:
                track.share_memory(1 << len(tracks).bit_length())
        return tracks[gpu]

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
        meant = [self._meant_by(error) for error in facts.errors]
        losses = [self._losses(track, facts, meant) for track in tracks]
        lost_share = facts.lost_rows / max(1, sum(track.rows for track in tracks))
        totals_of = [
            # Where the driver failed, its trouble says so, and when.
            self._totals(track, gpu, 0 if lost else _unusable(track, lost_share))
            for (_, gpu, track), lost in zip(named, losses, strict=True)
        ]
        verdicts = [judge(totals, self._settings) for totals in totals_of]
        troubles_of = [
            lost or tuple(self._ended_early(track, verdict, facts.clock))
            for track, verdict, lost in zip(tracks, verdicts, losses, strict=True)
        ]
        gpus = tuple(
            GpuReport(
                index=index,
                uuid=gpu.uuid,
                name=gpu.name,
                totals=totals,
                verdict=verdict,
                mig_enabled=gpu.mig_enabled and not totals.busy_ns,
                mig_index=gpu.mig_index,
                parent_uuid=parents.get(index) if gpu.mig_index is not None else None,
                idle_beside_peer_ns=idle_beside_peer_ns,
                held_memory=track.held,
                told_troubles=troubles,
                error=error_of(troubles),
            )
            for (index, gpu, track), idle_beside_peer_ns, troubles, totals, verdict in zip(
                named, beside_ns, troubles_of, totals_of, verdicts, strict=True
            )
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
            lost_elsewhere=tuple(
                _elsewhere(error)
                for error, gpus in zip(facts.errors, meant, strict=True)
                if not gpus
            ),
        )

    def _totals(self, track: GpuTrack, gpu: LoggedGpu, unusable: int) -> GpuTotals:
        """Where the time of a GPU went; nothing of one whose instances alone work (MIG)."""
        totals = track.ledger.snapshot()
        if gpu.mig_enabled and not totals.busy_ns:
            return GpuTotals()
        totals = totals._replace(
            samples=track.samples,
            sample_distance_ns=track.times.median_ns or track.period_ns,
            unusable_samples=unusable,
        )
        if has_too_few_samples(totals, self._settings):
            totals = totals._replace(
                suspected_ns=0, irregular_ns=0, suspicion=None, starved_intervals=(), episodes=0
            )
        return totals

    def _losses(
        self, track: GpuTrack, facts: LogFacts, meant: Sequence[Sequence[GpuTrack]]
    ) -> tuple[Trouble, ...]:
        """Why a GPU could not be read in a part of the log, or from some line of it on.

        ``meant``: for each error of the log, the GPUs that it is about.
        """
        position, zero_ns = self._tracks.index(track), self._zero_ns or 0

        def on_the_clock(stamp_ns: int | None) -> int | None:
            return None if stamp_ns is None else stamp_ns - zero_ns

        found = []
        for one, tracks in zip(facts.errors, meant, strict=True):
            if track not in tracks:
                continue
            back_ns, last_ns = None, on_the_clock(one.before_ns)
            times, longest_ns, _ = outages = one.outages.get(position, _NEVER_BACK)
            if not self._is_lost(track, one):
                back_ns = outages.back_ns or track.last_row_ns + zero_ns
            elif track.ledger.last_end_ns >= 0:
                last_ns = track.ledger.last_end_ns
            often = f"{times:,} times, but could be in between"
            if times == 1:
                often = "for a time" if _is_silence(longest_ns, track) else "once"
            trouble = lost_in_log(_why(one, tracks), often, on_the_clock(back_ns))
            found.append(
                trouble._replace(
                    line=one.line, began_ns=on_the_clock(one.stamp_ns), last_ns=last_ns,
                    times=times if times > 1 and back_ns is not None else None,
                )
            )  # fmt: skip
        if position in facts.partly:
            line, stamp_ns = facts.partly[position]
            found.append(failed_in_log(line, on_the_clock(stamp_ns)))
        return tuple(found)

    def _meant_by(self, error: LoggedError) -> list[GpuTrack]:
        """The GPUs of the report that an error is about; none where that is another one.

        One whose rows go on was not lost by an error that names another GPU, or one of which
        nothing tells which it is.
        """
        if not error.is_of_one:
            return self._shown
        if error.gpu is not None:
            return [track for track in self._shown if track is self._tracks[error.gpu]]
        gone = [
            track
            for track in self._shown
            if self._is_lost(track, error)
            and track.last_row_ns + (self._zero_ns or 0) + _A_FEW_ROWS * track.period_ns
            >= (error.before_ns or 0)
        ]
        return gone or [track for track in self._shown if self._was_silent(track, error)]

    def _is_lost(self, track: GpuTrack, error: LoggedError) -> bool:
        """Whether no row follows an error; an only line at the end of a log is as those before."""
        known = error.outages.get(self._tracks.index(track))
        if known is None:
            ends_ns = max(one.last_row_ns for one in self._shown)
            return not error.outages or track.last_row_ns + track.period_ns < ends_ns
        return known.back_ns is None and (error.lines > 1 or self._was_silent(track, error))

    def _was_silent(self, track: GpuTrack, error: LoggedError) -> bool:
        """Whether a row of a GPU is missing where an error is."""
        known = error.outages.get(self._tracks.index(track))
        is_first = error.before_ns is None and error.lines == 1
        return known is not None and not is_first and _is_silence(known.longest_ns, track)

    def lanes(self) -> Lanes:
        """How busy each GPU of the report was, in its order and on its clock."""
        return Lanes(tuple(track.lane.snapshot() for track in self._shown))

    @property
    def rows(self) -> int:
        """How many rows the sums are of."""
        return sum(track.samples for track in self._tracks)

    @property
    def newest_ratios(self) -> tuple[float, ...]:
        """How busy each GPU of the report was in its newest row, in its order."""
        return tuple(track.newest_ratio for track in self._shown)

    def _together(self, tracks: Sequence[GpuTrack]) -> Together | None:
        if len(tracks) < 2 or self._room.is_full:
            return None
        # Rows may come quicker than the driver's windows, which begin when they like on each GPU.
        longest_ns = max(LONGEST_WINDOW_NS, *(track.times.usual_ns for track in tracks))
        return together([track.changes for track in tracks], tolerance_ns=longest_ns // 2)

    def _ended_early(self, track: GpuTrack, verdict: Verdict, clock: LogClock) -> Iterator[Trouble]:
        """That the log tells of a GPU no more, though it goes on with others and says not why."""
        longest_ns = max(one.ledger.last_end_ns for one in self._shown)
        first_ns = min(one.first_ns or 0 for one in self._shown)
        limits, end_ns = self._settings.log, track.ledger.last_end_ns
        least_ns = min(
            limits.ended_early_ns, int(limits.ended_early_share * (longest_ns - first_ns))
        )
        silence_ns = longest_ns - end_ns
        if track.samples and silence_ns >= max(least_ns, _A_FEW_ROWS * track.period_ns):
            goes_on = track.last_row_ns > end_ns + _A_FEW_ROWS * track.period_ns
            at = clock.iso(end_ns + (self._zero_ns or 0))
            when = f"the first {in_time(end_ns - first_ns)}"
            if at is not None:
                when = at.replace("T", " ").partition(".")[0]
            yield ended_in_log(
                f"had no {'value' if goes_on else 'row'} after {when}, while the log goes on for "
                f"{in_time(silence_ns)}{_UNTIL_THEN.get(verdict.name, '')}",
                end_ns,
            )

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


def _is_silence(silence_ns: int, track: GpuTrack) -> bool:
    """Whether that is longer than between two rows that follow each other."""
    return silence_ns > _ROWS_APART * track.period_ns


def _why(error: LoggedError, gpus: Sequence[GpuTrack]) -> str:
    """Why these cannot be read, a colon, and what to do."""
    if not error.is_of_one or error.gpu is not None or (len(gpus) == 1 and not error.is_elsewhere):
        return error.what
    meaning, _, todo = error.what.partition(": ")
    at = f"GPU {error.which}" if error.which else "a GPU"
    return f"nvidia-smi gives up at {at} ({meaning}): {todo}"


def _elsewhere(error: LoggedError) -> str:
    """That a GPU of which the log has no row cannot be read, a colon, and what to do."""
    meaning, _, todo = error.what.partition(": ")
    which = f"GPU {error.which}" if error.which else "a GPU"
    return (
        f"{which}, which this log does not hold, cannot be read ({meaning}; line {error.line:,}): "
        f"{todo}"
    )


def _unusable(track: GpuTrack, lost_share: float) -> int:
    """Rows of a GPU that do not say how busy it was.

    ``lost_share``: rows of which no GPU can be told, for each of which one can be.
    """
    return track.unanswered + round(lost_share * track.rows)


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
