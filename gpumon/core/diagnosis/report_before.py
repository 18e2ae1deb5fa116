"""A daemon's report joined with what earlier processes of it watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple, TypeVar

from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.clock import nanoseconds, seconds
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.report.report import Report
from gpumon.core.wording import in_time, listed, time_of_day

_MAX_GAPS: Final = 4
_SHORTEST_GAP_S: Final = 1.0
_Key = TypeVar("_Key")


class EarlierTime(NamedTuple):
    """What earlier processes of the daemon watched.

    Attributes:
        totals: By UUID.
        from_s: From when on it is known, in seconds since the epoch.
        is_cut: Whether more was requested than is kept.
        gaps: From when until when, in the same seconds, gpumon was not running, up to the start
            of the present process.
    """

    totals: Mapping[str, GpuTotals]
    from_s: float
    is_cut: bool
    gaps: tuple[tuple[float, float], ...]


def joined_totals(before: GpuTotals, after: GpuTotals) -> GpuTotals:
    """The totals of both times; whether it is starved, hangs or waits now is that of the later."""
    sums: dict[str, Any] = {
        name: was + more
        for name, was, more in zip(GpuTotals._fields, before, after, strict=True)
        if type(was) is int and type(more) is int
    }
    maps: dict[str, Any] = {
        name: _sum(was, more)
        for name, was, more in zip(GpuTotals._fields, before, after, strict=True)
        if isinstance(was, Mapping) and isinstance(more, Mapping)
    }
    return after._replace(
        **sums,
        **maps,
        gaps=_joined_gaps(before.gaps, after.gaps),
        pauses=_joined_gaps(before.pauses, after.pauses),
    )


def _sum(before: Mapping[_Key, int], after: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: before.get(key, 0) + after.get(key, 0) for key in {**before, **after}}


def _joined_gaps(before: GapTotals, after: GapTotals) -> GapTotals:
    if not before.count or not after.count:
        return before if before.count else after
    return replace(
        after,
        count=before.count + after.count,
        total_ns=before.total_ns + after.total_ns,
        longest_ns=max(before.longest_ns, after.longest_ns),
    )


def report_with_earlier(earlier: EarlierTime, now: Report) -> Report:
    """The report of the earlier time and of the daemon's own, for the GPUs that it watches."""
    gpus = []
    for gpu in now.gpus:
        before = earlier.totals.get(gpu.uuid or "")
        if before is not None:
            totals = joined_totals(before, gpu.totals)
            gpu = replace(gpu, totals=totals, verdict=diagnose(totals))
        gpus.append(gpu)
    begin = datetime.fromtimestamp(earlier.from_s, tz=timezone.utc)
    origin_ns = now.origin_ns
    if now.started_at is not None:
        started = datetime.fromisoformat(now.started_at)
        origin_ns -= nanoseconds(max(0.0, (started - begin).total_seconds()))
    return replace(
        now,
        started_at=begin.isoformat(),
        origin_ns=origin_ns,
        observed_ns=max((gpu.totals.observed_ns for gpu in gpus), default=0),
        is_part=True,
        gpus=tuple(gpus),
        advice=advise(gpus, now.runs),
        notes=(*now.notes, *_notes(earlier, now)),
    )


def _notes(earlier: EarlierTime, now: Report) -> list[str]:
    present = now.wall_time(now.origin_ns + now.observed_ns) or datetime.now(tz=timezone.utc)
    notes = [f"This reaches back to {_clock(earlier.from_s, present)}"]
    notes[0] += ": nothing earlier is kept." if earlier.is_cut else ", over restarts of gpumon."
    gaps = [gap for gap in earlier.gaps if gap[1] - gap[0] >= _SHORTEST_GAP_S]
    if gaps:
        longest = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_MAX_GAPS])
        times = [_between(gap, present) for gap in longest]
        if len(gaps) > len(longest):
            rest_s = sum(end - start for start, end in gaps)
            rest_s -= sum(end - start for start, end in longest)
            times.append(f"{len(gaps) - len(longest)} times more ({_length(rest_s)} in all)")
        notes.append(f"Not watched {listed(times, most=8)}: gpumon was not running.")
    if now.started_at is not None:
        started = time_of_day(datetime.fromisoformat(now.started_at), present)
        notes.append(f"Runs and their steps are those since gpumon started at {started}.")
    gone = [totals for uuid, totals in earlier.totals.items() if uuid not in _uuids(now)]
    if gone:
        hours_ns = sum(totals.observed_ns for totals in gone)
        notes.append(
            f"Not counted: {in_time(hours_ns)} of {len(gone)} "
            f"{'GPU that is' if len(gone) == 1 else 'GPUs that are'} no longer here."
        )
    return notes


def _uuids(report: Report) -> Sequence[str | None]:
    return [gpu.uuid for gpu in report.gpus]


def _length(duration_s: float) -> str:
    return in_time(nanoseconds(duration_s))


def _clock(at_s: float, now: datetime) -> str:
    return time_of_day(datetime.fromtimestamp(at_s, tz=timezone.utc), now)


def _between(gap: tuple[float, float], now: datetime) -> str:
    """``from 02:10 to 02:14 UTC``; of a short gap, how long it was.

    >>> at = datetime(2026, 11, 30, 12, 0, tzinfo=timezone.utc)
    >>> _between((at.timestamp() - 600, at.timestamp() - 360), at)
    'from 11:50 to 11:54 UTC'
    >>> _between((at.timestamp() - 605, at.timestamp() - 600), at)
    'for 5 s at 11:49 UTC'
    """
    start, end = _clock(gap[0], now), _clock(gap[1], now)
    if gap[1] - gap[0] < timedelta(minutes=1).total_seconds():
        return f"for {seconds(nanoseconds(gap[1] - gap[0])):.0f} s at {start}"
    if len(start) == len(end):
        start = start.removesuffix(" UTC")
    return f"from {start} to {end}"
