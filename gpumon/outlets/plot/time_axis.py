"""The time axis of a picture: round ticks, by the wall clock where the log has one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.report.report import Report
from gpumon.core.wording import label_text
from gpumon.outlets.plot.drawing import text_width

TICK_SIZE: Final = 10.0
_GAP: Final = 14.0
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STEPS_S: Final = (
    *(digit * 10.0**power for power in range(-6, 0) for digit in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30),
    *(minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 3, 6, 12)),
    *(digit * 10**power * _DAY for power in range(6) for digit in (1, 2, 5)),
)
_EPOCH: Final = datetime(1970, 1, 1)


class AxisTick(NamedTuple):
    """One mark: where, and what stands under it, in one line or two."""

    at_ns: int
    label: str
    date: str = ""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Which stretch of time a picture shows.

    Attributes:
        start_ns: Where it begins, on the clock of the report's intervals.
        end_ns: Where it ends, later than ``start_ns``.
        origin_ns: What times are counted from where there is no wall clock.
        origin: The wall clock's time at ``origin_ns``, without its zone;
            ``None`` where the log has none.
        zone: What to say of that clock's zone.
    """

    start_ns: int
    end_ns: int
    origin_ns: int
    origin: datetime | None = None
    zone: str = ""

    def ticks(self, room: float) -> tuple[AxisTick, ...]:
        """Round ticks whose labels have room beside each other.

        Args:
            room: Width of the axis, in points.
        """
        for step_s in _STEPS_S:
            ticks = self._ticks_of(step_s, room)
            if ticks is not None:
                return ticks
        return ()

    def caption(self) -> str:
        """What the ticks' times are."""
        if self.origin is None:
            return "time from the start of the log"
        first, last = self._moment(self.start_ns), self._moment(self.end_ns)
        date = f"{first:%Y-%m-%d}, " if first.date() == last.date() else ""
        return f"{date}{self.zone}"

    def label(self, at_ns: int) -> str:
        """An instant in words, to the tenth of a second where the picture is short."""
        span_s = seconds(self.end_ns - self.start_ns)
        if self.origin is None:
            return f"{seconds(at_ns - self.origin_ns):,.{1 if span_s < 600 else 0}f} s"
        moment = self._moment(at_ns)
        tenth = f".{moment.microsecond // 100_000}" if span_s < 600 else ""
        return (
            f"{moment:%Y-%m-%d %H:%M:%S}{tenth}" if span_s >= _DAY else f"{moment:%H:%M:%S}{tenth}"
        )

    def _moment(self, at_ns: int) -> datetime:
        return (self.origin or _EPOCH) + timedelta(microseconds=(at_ns - self.origin_ns) // 1000)

    def _ticks_of(self, step_s: float, room: float) -> tuple[AxisTick, ...] | None:
        """Ticks a step apart; ``None`` where their labels would touch."""
        step_ns = round(step_s * NS_PER_S)
        apart = room * step_ns / (self.end_ns - self.start_ns)
        if apart < _GAP:
            return None
        zero_ns = self._zero_ns()
        first = -(-(self.start_ns - zero_ns) // step_ns)
        last = (self.end_ns - zero_ns) // step_ns
        ticks: list[AxisTick] = []
        date = ""
        for number in range(first, last + 1):
            at_ns = zero_ns + number * step_ns
            tick = self._tick(at_ns, step_s)
            ticks.append(tick if tick.date != date else tick._replace(date=""))
            date = tick.date
        widest = max(
            (text_width(text, TICK_SIZE) for tick in ticks for text in (tick.label, tick.date)),
            default=0.0,
        )
        return tuple(ticks) if widest + _GAP <= apart or len(ticks) == 1 else None

    def _zero_ns(self) -> int:
        """An instant that every step is counted from: a midnight, by the wall clock."""
        if self.origin is None:
            return self.origin_ns
        since = self.origin - _EPOCH
        since_ns = (since.days * _DAY + since.seconds) * NS_PER_S + since.microseconds * 1000
        return self.origin_ns - since_ns

    def _tick(self, at_ns: int, step_s: float) -> AxisTick:
        if self.origin is None:
            return AxisTick(at_ns, _relative(at_ns - self.origin_ns, step_s))
        moment = self._moment(at_ns)
        if step_s >= _DAY:
            return AxisTick(at_ns, f"{moment:%Y-%m-%d}")
        spans_days = self._moment(self.start_ns).date() != self._moment(self.end_ns).date()
        date = f"{moment:%Y-%m-%d}" if spans_days else ""
        if step_s >= _MINUTE:
            return AxisTick(at_ns, f"{moment:%H:%M}", date)
        if step_s >= 1:
            return AxisTick(at_ns, f"{moment:%H:%M:%S}", date)
        return AxisTick(at_ns, f"{moment:%H:%M:%S.%f}".rstrip("0").rstrip("."), date)


def axis_of(report: Report, start_ns: int, end_ns: int) -> TimeAxis:
    """The axis for a stretch of a report, on the clock of its intervals."""
    end_ns = max(end_ns, start_ns + 1)
    relative = TimeAxis(start_ns, end_ns, report.origin_ns)
    try:
        moment = datetime.fromisoformat(report.started_at or "")
        axis = TimeAxis(
            start_ns, end_ns, report.origin_ns, moment.replace(tzinfo=None), _zone(moment)
        )
        axis.label(start_ns)
        axis.label(end_ns)
    except (ValueError, OverflowError):  # no clock, or one beyond the year 9999
        return relative
    return axis


def _zone(moment: datetime) -> str:
    if moment.tzinfo is None:
        return "by the clock of the log"
    return f"UTC{moment:%z}" if moment.utcoffset() else "UTC"


def _relative(at_ns: int, step_s: float) -> str:
    at_s = seconds(at_ns)
    if step_s < _MINUTE:
        return label_text(f"{at_s:.6f}".rstrip("0").rstrip(".") + " s")
    for unit_s, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if step_s >= unit_s:
            return f"{at_s / unit_s:,.0f} {unit}"
    return f"{at_s:,.0f} s"
