"""The time axis of all lanes: dates on the log's clock, or time from its start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, datetime, timedelta

from matplotlib import dates
from matplotlib.ticker import Formatter, FuncFormatter, Locator, MaxNLocator

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.job_end import job_patience_ns
from gpumon.core.clock import NS_PER_S
from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DEFAULT_SETTINGS


@dataclass(frozen=True, slots=True)
class ClockAxis:
    """Maps times to an axis: dates on the log's clock, or time from its start."""

    span: Interval
    zero_ns: int
    zero: float
    unit_ns: float
    caption: str
    locator: Locator
    formatter: Formatter
    patience_ns: int

    def x(self, at_ns: float) -> float:
        """Return a time's position; a time outside the span is at its edge."""
        at_ns = min(max(at_ns, self.span.start_ns), self.span.end_ns)
        return self.zero + (at_ns - self.zero_ns) / self.unit_ns

    def bars(self, stretches: Iterable[Interval]) -> list[tuple[float, float]]:
        """Return left edge and width of each stretch, as for ``broken_barh``."""
        edges = ((self.x(stretch.start_ns), self.x(stretch.end_ns)) for stretch in stretches)
        return [(left, right - left) for left, right in edges]


def clock_axis_of(report: Report, span: Interval) -> ClockAxis:
    """Return the axis of a report over ``span``, which must not be empty."""
    patience_ns = job_patience_ns(report.period_ns, DEFAULT_SETTINGS)
    try:
        moment = datetime.fromisoformat(report.started_at or "")
        zero = moment.replace(tzinfo=None)
        first, last = (
            zero + timedelta(microseconds=(at_ns - report.origin_ns) // 1000)
            for at_ns in (span.start_ns, span.end_ns)
        )
    except (ValueError, OverflowError):  # no clock, or one beyond the calendar
        return _clock_from_start(report, span, patience_ns)
    if first.year == MINYEAR or last.year == MAXYEAR:  # an axis looks a little beyond its ends
        return _clock_from_start(report, span, patience_ns)
    locator = dates.AutoDateLocator(minticks=4, maxticks=11)
    for frequency in (dates.MINUTELY, dates.SECONDLY):
        locator.intervald[frequency] = [1, 2, 5, 10, 15, 30]
    formatter = dates.ConciseDateFormatter(
        locator,
        formats=["%Y", "%Y-%m", "%m-%d", "%H:%M", "%H:%M", "%H:%M:%S.%f"],
        zero_formats=["", "%Y", "%Y-%m", "%Y-%m-%d", "%H:%M", "%H:%M"],
        show_offset=False,
    )
    days = f"{first:%Y-%m-%d}" + (f" to {last:%Y-%m-%d}" if last.date() != first.date() else "")
    return ClockAxis(
        span, report.origin_ns, float(dates.date2num(zero)), 86_400.0 * NS_PER_S,
        f"{days}, {_zone(moment)}", locator, formatter, patience_ns,
    )  # fmt: skip


def _zone(moment: datetime) -> str:
    if moment.tzinfo is None:
        return "by the clock of the log"
    return f"UTC{moment:%z}" if moment.utcoffset() else "UTC"


def _clock_from_start(report: Report, span: Interval, patience_ns: int) -> ClockAxis:
    units = ((2 * 86_400, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"), (0, 1, "s"))
    unit_s, unit = next(
        (unit_s, unit) for least_s, unit_s, unit in units if span.duration_ns >= least_s * NS_PER_S
    )
    return ClockAxis(
        span, report.origin_ns, 0.0, float(unit_s * NS_PER_S),
        f"time from the start of the log, {unit}", MaxNLocator(8),
        FuncFormatter(lambda value, _: f"{value:,.10g}"), patience_ns,
    )  # fmt: skip
