"""Turns a finished log, read once from start to end, into a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.device.troubles import Trouble, ended_in_log, error_of
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import diagnose, has_too_few_samples
from gpumon.core.log_summary.activity import MAX_CHANGES, ChangeBudget
from gpumon.core.log_summary.common_pauses import Together, together
from gpumon.core.report.lanes import Lanes
from gpumon.core.report.report import TOO_FEW_SAMPLES, Advice, GpuReport, Report, sampling_of
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.verdict import Verdict, VerdictName
from gpumon.core.wording import counted, in_time, label_text, listed, plainly
from gpumon.pipeline.log_losses import A_FEW_ROWS, LogLosses
from gpumon.pipeline.log_track import LONGEST_WINDOW_NS, GpuTrack, PeriodTimes
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, RowColumns
from gpumon.sources.logs.stamps.log_clock import LogClock

_HEAD_ROOM_NS: Final = 1 << 55
"""Times count from about a year before the log's first stamp: the detector's clock has no time
before 0, and the first sample of a relative log begins before its 0."""

_OFTEN_NS: Final = NS_PER_S // 1000
"""No driver updates its utilisation as often as this."""
_RARE_NS: Final = 100 * NS_PER_S
_UNTIL_THEN: Final[Mapping[VerdictName, str]] = {
    VerdictName.HEALTHY: ", and was busy almost all its time in use until then",
    VerdictName.NOT_IN_USE: ", and had nothing to do until then",
}


class LogAnalysis:
    """Settles the rows of one log, GPU by GPU.

    Memory does not grow with the log, except for 8 bytes a change of state, up to ``MAX_CHANGES``.

    Args:
        period_ns: Time between two rows of one GPU, if the user gives it; ``None``: see the stamps.
    """

    def __init__(self, settings: DetectorSettings, period_ns: int | None = None) -> None:
        self._settings = settings
        self._period_ns = period_ns
        self._change_budget = ChangeBudget()
        self._tracks: list[GpuTrack] = []
        self._shown: list[GpuTrack] = []
        self._zero_ns: int | None = None

    def ingest(self, blocks: Iterable[Sequence[RowColumns]]) -> None:
        """Ingest all rows, in blocks of columns.

        Raises:
            UnreadableLogError: The rest of the log cannot be read.
        """
        for block in blocks:
            if self._zero_ns is None and block:
                self._zero_ns = min(rows.stamps_ns[0] for rows in block) - _HEAD_ROOM_NS
            zero_ns = self._zero_ns or 0
            for gpu, stamps_ns, busy_ratios, used_bytes in block:
                on_its_clock_ns = [stamp_ns - zero_ns for stamp_ns in stamps_ns]
                self._track_of(gpu).ingest_rows(on_its_clock_ns, busy_ratios, used_bytes)
        for track in self._tracks:
            track.finish()

    def _track_of(self, gpu: int) -> GpuTrack:
        tracks = self._tracks
        while gpu >= len(tracks):
            tracks.append(GpuTrack(self._settings, self._period_ns, self._change_budget))
            for track in tracks:
                track.share_memory(1 << len(tracks).bit_length())
        return tracks[gpu]

    def report(self, source: str, facts: LogFacts) -> Report:
        """Return the report of the log named ``source``, with the facts of its reader."""
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
        losses = LogLosses(facts, self._tracks, self._zero_ns or 0)
        troubles_by_track = [losses.of(track) for track in tracks]
        lost_share = facts.lost_rows / max(1, sum(track.rows for track in tracks))
        totals_of = [
            # Driver errors are reported as troubles of their own.
            self._totals(track, gpu, 0 if lost else _unusable(track, lost_share))
            for (_, gpu, track), lost in zip(named, troubles_by_track, strict=True)
        ]
        verdicts = [diagnose(totals, self._settings) for totals in totals_of]
        troubles_of = [
            lost or tuple(self._ended_early(track, verdict, facts.clock))
            for track, verdict, lost in zip(tracks, verdicts, troubles_by_track, strict=True)
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
                idle_after_use_ns=track.idle_after_use_ns,
                held_memory=track.held,
                reported_troubles=troubles,
                error=error_of(troubles),
            )
            for (index, gpu, track), idle_beside_peer_ns, troubles, totals, verdict in zip(
                named, beside_ns, troubles_of, totals_of, verdicts, strict=True
            )
        )
        unit_note = _note_on_unit(facts.bare_times, period_ns)
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
            advice=_advice_on(gpus, unit_note),
            notes=(
                *facts.notes,
                *filter(None, [unit_note]),
                *self._notes(gpus, times, dropped),
            ),
            together=joined,
            sampling=sampling_of(period_ns, self._settings),
            lost_elsewhere=losses.elsewhere(),
        )

    def _totals(self, track: GpuTrack, gpu: LoggedGpu, unusable: int) -> GpuTotals:
        """Return a GPU's totals; none for a partitioned GPU (MIG) without work of its own."""
        totals = track.ledger.snapshot()
        if gpu.mig_enabled and not totals.busy_ns:
            return GpuTotals()
        totals = totals._replace(
            samples=track.samples,
            sample_distance_ns=track.times.median_ns or track.period_ns,
            unusable_samples=unusable,
        )
        if has_too_few_samples(totals, self._settings):
            totals = totals._replace(irregular_ns=0, suspicion=None)
        suspicion = totals.suspicion
        if suspicion is None or suspicion.input_probability < self._settings.suspected_from:
            # A suspicion about a part of the log that the pauses of all of it do not confirm.
            totals = totals._replace(suspected_ns=0, starved_intervals=(), episodes=0)
        return totals

    def lanes(self) -> Lanes:
        """How busy each GPU of the report was, in its order and on its clock."""
        return Lanes(tuple(track.lane.snapshot() for track in self._shown))

    @property
    def rows(self) -> int:
        """Number of rows in the totals."""
        return sum(track.samples for track in self._tracks)

    @property
    def newest_ratios(self) -> tuple[float, ...]:
        """Busy ratio of each GPU in its newest row, in the order of the report."""
        return tuple(track.newest_ratio for track in self._shown)

    def _together(self, tracks: Sequence[GpuTrack]) -> Together | None:
        if len(tracks) < 2 or self._change_budget.is_full:
            return None
        # Rows may be closer than the driver's windows, which are not aligned between GPUs.
        longest_ns = max(LONGEST_WINDOW_NS, *(track.times.usual_ns for track in tracks))
        return together([track.changes for track in tracks], tolerance_ns=longest_ns // 2)

    def _ended_early(self, track: GpuTrack, verdict: Verdict, clock: LogClock) -> Iterator[Trouble]:
        """Yield a trouble if a GPU's rows end while the log goes on with other GPUs."""
        longest_ns = max(track.ledger.last_end_ns for track in self._shown)
        first_ns = min(track.first_ns or 0 for track in self._shown)
        limits, end_ns = self._settings.log, track.ledger.last_end_ns
        least_ns = min(
            limits.ended_early_ns, int(limits.ended_early_share * (longest_ns - first_ns))
        )
        silence_ns = longest_ns - end_ns
        if track.samples and silence_ns >= max(least_ns, A_FEW_ROWS * track.period_ns):
            goes_on = track.last_row_ns > end_ns + A_FEW_ROWS * track.period_ns
            at = clock.iso(end_ns + (self._zero_ns or 0))
            when = f"the first {in_time(end_ns - first_ns)}"
            if at is not None:
                when = at.replace("T", " ").partition(".")[0]
            until_then = _UNTIL_THEN.get(verdict.name, "")
            if (verdict.lost_ratio or 0.0) >= self._settings.lost_share:
                until_then = ""  # called healthy for its pauses are too few
            yield ended_in_log(
                f"had no {'value' if goes_on else 'row'} after {when}, while the log goes on for "
                f"{in_time(silence_ns)}{until_then}",
                end_ns,
            )

    def _notes(self, gpus: Sequence[GpuReport], times: PeriodTimes, dropped: int) -> Iterator[str]:
        tracks = self._shown
        if dropped:
            yield f"Dropped {counted(dropped, 'row', 'rows')} whose time did not increase."
        holes = sum(track.holes for track in tracks)
        if holes:
            lost_s = seconds(sum(track.holes_ns for track in tracks))
            yield (
                f"Not observed: {lost_s:,.1f} s in {counted(holes, 'gap', 'gaps')}. "
                "No sum includes them."
            )
        if any(track.period_is_assumed for track in tracks):
            yield "The log has too few rows to find the time between two: 1 s was assumed."
        periods = times.main_periods()
        if len(periods) > 1:
            parts = [f"{in_time(period_ns)} for {in_time(time)}" for period_ns, time in periods]
            yield f"The time between two rows changes: {listed(parts)} of GPU time."
        if len(tracks) > 1 and self._change_budget.is_full:
            yield (
                f"The GPUs started or stopped working more than {MAX_CHANGES:,} times: their "
                "pauses were not compared."
            )
        merged = sum(gpu.totals.merged_intervals for gpu in gpus)
        if merged:
            yield (
                f"{merged} starved intervals were merged with a neighbour; the sums are unaffected."
            )


def _note_on_unit(heading: str | None, period_ns: int) -> str:
    """Return a note that bare numbers were read as seconds, if the period is implausible."""
    if heading is None or _OFTEN_NS <= period_ns < _RARE_NS:
        return ""
    if period_ns < _OFTEN_NS:
        otherwise = "If it counts days, as a spreadsheet does, multiply it by 86400."
    else:
        otherwise = "If it counts milliseconds, call it time_ms."
    which = f'column "{label_text(heading, 60)}"' if heading else "column of times"
    return (
        f"The {which} has no unit and was read as seconds (one row every "
        f"{plainly(seconds(period_ns), 3)} s). {otherwise}"
    )


def _advice_on(gpus: Sequence[GpuReport], unit_note: str) -> tuple[Advice, ...]:
    """Return the advice; a doubtful unit of time comes first if it may explain too few samples."""
    advice = advise(gpus, ())
    if not (unit_note and advice and advice[0].cause == TOO_FEW_SAMPLES):
        return advice
    otherwise = f"{advice[0].text[:1].lower()}{advice[0].text[1:]}"
    text = f"If the log counts its time in milliseconds, call that column time_ms. Else {otherwise}"
    return (replace(advice[0], text=text), *advice[1:])


def _unusable(track: GpuTrack, lost_share: float) -> int:
    """Return how many rows of a GPU have no utilisation.

    ``lost_share``: rows of no known GPU, as a share of all rows.
    """
    return track.unanswered + round(lost_share * track.rows)


def _in_order(
    gpus: Sequence[LoggedGpu], tracks: Sequence[GpuTrack]
) -> list[tuple[int, LoggedGpu, GpuTrack]]:
    """Return the GPUs that have rows, with their indices; MIG instances follow their GPU."""
    named = [
        (position if gpu.index is None else gpu.index, gpu, track)
        for position, (gpu, track) in enumerate(zip(gpus, tracks, strict=False))
        if track.first_ns is not None
    ]
    named.sort(key=lambda pair: -1 if pair[1].mig_index is None else pair[1].mig_index)
    return sorted(named, key=itemgetter(0))
