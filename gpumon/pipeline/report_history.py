"""Earlier reports of a daemon, so that it can say what happened in the last hour."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from gpumon.core.report import GpuReport, Report
from gpumon.core.report_since import report_since
from gpumon.core.units import NS_PER_S, seconds

_EVERY_NS = 10 * NS_PER_S
_MOST = 256


class ReportHistory:
    """Keeps a report every ten seconds; older ones lie further and further apart.

    When it is full, that one is let go of whose neighbours are closest for
    their age: what is left lies as dense, measured by its age, everywhere. A
    month fits as an hour does.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[int, Report]] = []

    def is_due(self, now_ns: int) -> bool:
        """Whether the next report is to be kept."""
        return not self._kept or now_ns - self._kept[-1][0] >= _EVERY_NS

    def keep(self, report: Report, now_ns: int) -> None:
        """Keep a report, without what only its newest reader needs."""
        self._kept.append((now_ns, slim(report)))
        if len(self._kept) > _MOST:
            stamps = [at_ns for at_ns, _ in self._kept]
            least = min(
                range(1, len(stamps) - 1),
                key=lambda k: (stamps[k + 1] - stamps[k - 1]) / (now_ns - stamps[k]),
            )
            self._kept = self._kept[:least] + self._kept[least + 1 :]

    def since(self, now: Report, now_ns: int, since_s: float) -> Report:
        """The report of the last ``since_s`` seconds, as near as was kept.

        Where the daemon is younger than that, it is the whole report, and
        says so.
        """
        wanted_ns = now_ns - round(since_s * NS_PER_S)
        earlier = [kept for kept in self._kept if kept[0] <= wanted_ns]
        if not earlier:
            note = "The daemon has not run that long: this is all since it began."
            return replace(now, notes=(*now.notes, note))
        at_ns, before = earlier[-1]
        note = (
            f"Of the last {seconds(now_ns - at_ns):,.0f} s: the earlier report nearest to what "
            "was asked for. One is kept every 10 s; old ones lie further apart."
        )
        return replace(
            report_since(before, now),
            origin_ns=at_ns,
            started_at=later(now.started_at, at_ns - now.origin_ns),
            notes=(*now.notes, note),
        )


def slim(report: Report) -> Report:
    """The report without what only its newest reader needs."""
    return replace(report, gpus=tuple(_slim(gpu) for gpu in report.gpus), advice=())


def _slim(gpu: GpuReport) -> GpuReport:
    totals = gpu.totals
    return replace(gpu, totals=totals._replace(starved_intervals=totals.starved_intervals[-1:]))


def later(started_at: str | None, by_ns: int) -> str | None:
    """An ISO 8601 time moved on; ``None`` stays ``None``."""
    if started_at is None:
        return None
    return (datetime.fromisoformat(started_at) + timedelta(seconds=seconds(by_ns))).isoformat()
