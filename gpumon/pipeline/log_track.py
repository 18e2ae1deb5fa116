"""One GPU of a log: turns its rows into samples and settles them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import sub
from statistics import median_low
from typing import Final, NamedTuple

from gpumon.core.accounting.job_end import MemoryRelease
from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.sample_columns import SampleColumns
from gpumon.core.clock import NS_PER_S
from gpumon.core.log_summary.activity import ChangeBudget, StateChanges
from gpumon.core.log_summary.busy_lane import BusyLane
from gpumon.core.log_summary.held_memory import HeldMemory, HeldMemoryTracker
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings

LONGEST_WINDOW_NS: Final = NS_PER_S
"""NVML averages utilisation over 1/6 s to 1 s, by product."""


def merge_equal_samples(samples: Sequence[BusySample]) -> list[BusySample]:
    """Join neighbours with equal ratios, up to the longest window.

    A logger that reads ten times a second gets each window of the driver several times. Row by row,
    the window in which a pause begins would be a burst of several rows.

    Args:
        samples: Of one GPU, disjoint, oldest first, each shorter than a window.
    """
    joined: list[BusySample] = []
    for sample in samples:
        start_ns, end_ns, ratio = sample
        if joined and joined[-1].end_ns == start_ns and joined[-1].busy_ratio == ratio:
            from_ns = joined[-1].start_ns
            if end_ns - from_ns <= LONGEST_WINDOW_NS:
                joined[-1] = BusySample(from_ns, end_ns, ratio)
                continue
        joined.append(sample)
    return joined


HOLE_PERIODS: Final = DEFAULT_SETTINGS.log.hole_periods
"""A longer gap is not observed."""
ROWS_OF_A_CHANGE: Final = 4
"""The period has changed after this many equal intervals; fewer may be holes."""
LONGEST_PERIOD_NS: Final = 1 << 55
"""About a year: rows further apart have no valid time."""
_FIRST_ROWS: Final = 6
_SAME_WITHIN: Final = 1.25
_MAX_PERIODS: Final = 64
_FEW_ROWS: Final = 0.1
"""A period that fewer of the rows have is never the usual one."""
_MAIN_SHARE: Final = DEFAULT_SETTINGS.log.period_told_from


def usual_interval_ns(stamps_ns: Sequence[int]) -> int:
    """Return the median time between two stamps; 0 if none rises or they are no times.

    >>> [usual_interval_ns(stamps) for stamps in ([10, 20, 30, 25, 70], [9, 20, 5, 21, 22], [1, 1])]
    [10, 1, 0]
    """
    newest_ns = accumulate(stamps_ns, max)
    rising = [after - before for before, after in pairwise(newest_ns) if after > before]
    period_ns = median_low(rising) if rising else 0
    return period_ns if period_ns <= LONGEST_PERIOD_NS else 0


def first_interval_ns(stamps_ns: Sequence[int], period_ns: int) -> int:
    """Return the time the first row covers: a period, or less if the first rows are closer.

    It is at most the driver's longest window: the time before that is not observed.

    >>> first_interval_ns([0, 60, 120], 60), first_interval_ns([0, 1, 2, 3, 63, 123], 60)
    (60, 1)
    >>> first_interval_ns([0, 60 * NS_PER_S, 120 * NS_PER_S], 60 * NS_PER_S)
    1000000000
    """
    at_first_ns = usual_interval_ns(stamps_ns[:_FIRST_ROWS])
    first_ns = at_first_ns if 0 < at_first_ns * HOLE_PERIODS < period_ns else period_ns
    return min(first_ns, LONGEST_WINDOW_NS)


def common_interval_ns(intervals_ns: Sequence[int]) -> int:
    """Return the median interval; 0 if they differ too much for one period.

    >>> common_interval_ns([60, 61, 59, 120]), common_interval_ns([60, 600, 60, 70])
    (60, 0)
    """
    period_ns = median_low(intervals_ns)
    is_common = max(intervals_ns) <= period_ns * HOLE_PERIODS <= min(intervals_ns) * HOLE_PERIODS**2
    return period_ns if is_common and period_ns <= LONGEST_PERIOD_NS else 0


class PeriodTimes:
    """Observed time by period. Periods that differ only by jitter count as one."""

    def __init__(self) -> None:
        self._time_ns: dict[int, int] = {}

    def add(self, period_ns: int, time_ns: int) -> None:
        if time_ns <= 0:
            return
        for known_ns in self._time_ns:
            if known_ns <= period_ns * _SAME_WITHIN and period_ns <= known_ns * _SAME_WITHIN:
                self._time_ns[known_ns] += time_ns
                return
        if len(self._time_ns) < _MAX_PERIODS:
            self._time_ns[period_ns] = time_ns

    def merge(self, others: Iterable[PeriodTimes]) -> PeriodTimes:
        """Add the times of others; return self."""
        for other in others:
            for period_ns, time_ns in other._time_ns.items():
                self.add(period_ns, time_ns)
        return self

    @property
    def usual_ns(self) -> int:
        """The period with the most time, if enough rows have it; 0 without any."""
        by_time = self._time_ns
        rows = {period_ns: time_ns / period_ns for period_ns, time_ns in by_time.items()}
        many = min(_FEW_ROWS * sum(rows.values()), max(rows.values(), default=0.0))
        usual = (period_ns for period_ns in by_time if rows[period_ns] >= many)
        return max(usual, key=lambda period_ns: (by_time[period_ns], -period_ns), default=0)

    @property
    def median_ns(self) -> int:
        """The median period of all rows; 0 without any."""
        left = sum(time_ns / period_ns for period_ns, time_ns in self._time_ns.items()) / 2
        for period_ns, time_ns in sorted(self._time_ns.items()):
            left -= time_ns / period_ns
            if left <= 0:
                return period_ns
        return 0

    def main_periods(self) -> tuple[tuple[int, int], ...]:
        """Periods and times, in order of appearance, without those of little time."""
        least_ns = _MAIN_SHARE * sum(self._time_ns.values())
        return tuple(item for item in self._time_ns.items() if item[1] >= least_ns)


_PERIOD_SAMPLES: Final = 64
"""First rows of a GPU that determine its period."""
_MAX_WAITING: Final = 32_768
"""Samples of all GPUs that may wait to be settled, a quarter of a kilobyte each."""
_BATCH_SAMPLES: Final = 2_048
"""Samples settled at once, to share the cost of a call."""
_LEAST_BATCH: Final = 32


class _Row(NamedTuple):
    """A row that is held back until the time it covers is known."""

    stamp_ns: int
    silence_ns: int
    busy_ratio: float | None
    used_bytes: int | None


class GpuTrack:
    """Ingests the rows of one GPU in file order, and settles the time they cover.

    A row covers the time since the row before it; after a gap of more than 2.5 periods, only one
    period. The rest is a hole. If several such gaps in turn are about equal, the period has changed
    and there is no hole.

    Args:
        period_ns: Time between two rows, if the user gives it: then it does not change.
        budget: Limits the changes of state of all GPUs of the log.

    Attributes:
        ledger: Where the time went.
        lane: How busy the GPU was, for a picture.
        changes: When it worked, paused and was out of use.
        held: Memory held without work; ``None``: the log has no memory.
        first_ns: Start of the first row's time; ``None`` before it is known.
        period_ns: Current time between two rows.
        times: Observed time by period, once the log has ended.
        period_is_assumed: Whether there were too few rows to determine it.
        samples: Rows with a utilisation.
        unanswered: Rows without one.
        newest_ratio: Of the newest sample; 0 before the first.
        dropped: Rows whose time did not increase.
    """

    def __init__(
        self, settings: DetectorSettings, period_ns: int | None, budget: ChangeBudget
    ) -> None:
        self.ledger = GpuLedger(settings)
        self.lane = BusyLane(settings=settings)
        self.changes = StateChanges(settings, budget)
        self.held: HeldMemory | None = None
        self.first_ns: int | None = None
        self.times = PeriodTimes()
        self.period_is_assumed = False
        self.samples = self.unanswered = 0
        self.newest_ratio = 0.0
        self.dropped = self.holes = self.holes_ns = 0
        self._batch_samples = _BATCH_SAMPLES
        self._follows_period = period_ns is None
        self.period_ns = period_ns or 0
        self._shortest_ns, self._longest_ns = 0, -1  # of a usual interval: none before the period
        self._last_ns = self._timed_ns = 0
        self._memory, self._has_memory = HeldMemoryTracker(settings), False
        self._releases = MemoryRelease(settings)
        self._waiting: list[tuple[int, float | None, int | None]] = []
        self._late: list[_Row] = []
        self._short: list[int] = []
        self._starts_ns: list[int] = []
        self._ends_ns: list[int] = []
        self._ratios: list[float] = []
        self._window: list[BusySample] = []  # at most one, which the next row may repeat
        self._used: list[int | None] = []

    @property
    def rows(self) -> int:
        return self.samples + self.unanswered

    @property
    def idle_after_use_ns(self) -> int | None:
        """Time from the end of the last active sample on; ``None``: none was active."""
        ledger = self.ledger
        return ledger.last_end_ns - ledger.last_active_end_ns if ledger.last_active_end_ns else None

    @property
    def last_row_ns(self) -> int:
        """Time of the last row, with a utilisation or without."""
        return self._last_ns

    def ingest(self, stamp_ns: int, busy_ratio: float | None, used_bytes: int | None) -> None:
        silence_ns = stamp_ns - self._last_ns
        if not self._shortest_ns <= silence_ns <= self._longest_ns:
            self._ingest_unusual(stamp_ns, silence_ns, busy_ratio, used_bytes)
            return
        if self._late or self._short:
            self._end_unusual()
        self._last_ns = stamp_ns
        self._cover(stamp_ns - silence_ns, stamp_ns, busy_ratio, used_bytes)

    def ingest_rows(
        self,
        stamps_ns: Sequence[int],
        busy_ratios: Sequence[float | None],
        used_bytes: Sequence[int | None],
    ) -> None:
        """Ingest the next rows as columns, in one step if all come one period apart."""
        if self._are_usual(stamps_ns, busy_ratios):
            self._starts_ns += (self._last_ns, *stamps_ns[:-1])
            self._ends_ns += stamps_ns
            self._ratios += busy_ratios  # type: ignore[arg-type]  # none is None here
            self._used += used_bytes
            self._last_ns = stamps_ns[-1]
            while len(self._ends_ns) >= self._batch_samples:
                self._settle()
        else:
            for row in zip(stamps_ns, busy_ratios, used_bytes, strict=True):
                self.ingest(*row)

    def _are_usual(self, stamps_ns: Sequence[int], busy_ratios: Sequence[float | None]) -> bool:
        """Return whether all rows have a ratio and come one period after the row before."""
        if self.first_ns is None or self._late or self._short or None in busy_ratios:
            return False
        silences_ns: list[int] = list(map(sub, stamps_ns, (self._last_ns, *stamps_ns)))
        return self._shortest_ns <= min(silences_ns) <= max(silences_ns) <= self._longest_ns

    def share_memory(self, gpus: int) -> None:
        """Let fewer samples wait, so that many GPUs need no more memory together."""
        self._batch_samples = min(_BATCH_SAMPLES, max(_LEAST_BATCH, _MAX_WAITING // gpus))

    def finish(self) -> None:
        """Settle what is left: the log has ended."""
        if self.first_ns is None and self._waiting:
            self._begin()
        self._end_unusual()
        self._settle(goes_on=False)
        self._note_time()
        self.ledger.end_job()
        self.changes.finish()
        if self._has_memory:
            self.held = self._memory.finish()

    def _ingest_unusual(
        self, stamp_ns: int, silence_ns: int, busy_ratio: float | None, used_bytes: int | None
    ) -> None:
        """Ingest a row that does not come one period after the row before it."""
        if self.first_ns is None:
            self._waiting.append((stamp_ns, busy_ratio, used_bytes))
            if len(self._waiting) >= _PERIOD_SAMPLES:
                self._begin()
        elif silence_ns <= 0:
            self.dropped += 1
        elif silence_ns > self._longest_ns:
            self._last_ns = stamp_ns
            self._late.append(_Row(stamp_ns, silence_ns, busy_ratio, used_bytes))
            self._decide_on_late()
        else:
            self._end_late()
            self._last_ns = stamp_ns
            self._cover(stamp_ns - silence_ns, stamp_ns, busy_ratio, used_bytes)
            self._short.append(silence_ns)
            self._decide_on_short()

    def _decide_on_late(self) -> None:
        """Adopt the gaps so far as a new period, if they are one."""
        self._short.clear()
        late = self._late
        if not self._follows_period:
            self._end_late()
        elif len(late) >= ROWS_OF_A_CHANGE:
            period_ns = common_interval_ns([row.silence_ns for row in late])
            if not period_ns:
                self._leave_hole(late.pop(0))
                return
            self._adopt(period_ns)
            self._late = []
            for stamp_ns, silence_ns, busy_ratio, used_bytes in late:
                self._cover(stamp_ns - silence_ns, stamp_ns, busy_ratio, used_bytes)

    def _decide_on_short(self) -> None:
        """Adopt a new period if the rows come much closer now."""
        if len(self._short) >= ROWS_OF_A_CHANGE:
            period_ns = common_interval_ns(self._short)
            self._short.clear()
            if period_ns:
                self._adopt(period_ns)

    def _end_unusual(self) -> None:
        """A row came after a usual interval: the ones before were no change of period."""
        self._short.clear()
        self._end_late()

    def _end_late(self) -> None:
        for row in self._late:
            self._leave_hole(row)
        self._late.clear()

    def _leave_hole(self, row: _Row) -> None:
        stamp_ns, silence_ns, busy_ratio, used_bytes = row
        self.holes += 1
        self.holes_ns += silence_ns - self.period_ns
        self._cover(stamp_ns - self.period_ns, stamp_ns, busy_ratio, used_bytes)

    def _cover(
        self, start_ns: int, end_ns: int, busy_ratio: float | None, used_bytes: int | None
    ) -> None:
        if busy_ratio is None:
            self.unanswered += 1
            return
        self._starts_ns.append(start_ns)
        self._ends_ns.append(end_ns)
        self._ratios.append(busy_ratio)
        self._used.append(used_bytes)
        if len(self._ends_ns) >= self._batch_samples:
            self._settle()

    def _begin(self) -> None:
        """Determine the period from the waiting rows, then ingest them."""
        waiting, self._waiting = self._waiting, []
        stamps_ns = [stamp_ns for stamp_ns, _, _ in waiting]
        period_ns = self.period_ns or usual_interval_ns(stamps_ns)
        if not period_ns:
            period_ns, self.period_is_assumed = NS_PER_S, True
        self._adopt(period_ns)
        first_ns = first_interval_ns(stamps_ns, period_ns) if self._follows_period else period_ns
        self._last_ns = self.first_ns = stamps_ns[0] - first_ns
        for stamp_ns, busy_ratio, used_bytes in waiting:
            self.ingest(stamp_ns, busy_ratio, used_bytes)

    def _adopt(self, period_ns: int) -> None:
        self._settle(goes_on=False)
        self._note_time()
        self.period_ns = period_ns
        self._longest_ns = int(period_ns * HOLE_PERIODS)
        self._shortest_ns = max(1, int(period_ns / HOLE_PERIODS)) if self._follows_period else 1

    def _note_time(self) -> None:
        observed_ns = self.ledger.snapshot().observed_ns
        self.times.add(self.period_ns, observed_ns - self._timed_ns)
        self._timed_ns = observed_ns

    def _settle(self, *, goes_on: bool = True) -> None:
        """Settle a batch. If the log ``goes_on``, the next row may repeat the last window."""
        columns, used_bytes = self._next_batch()
        self.samples += len(columns)
        if len(columns):
            self.newest_ratio = columns.busy_ratios[-1]
        if not self._has_memory:
            self._has_memory = any(used is not None for used in used_bytes)
        begin = 0
        for end in self._releases.positions(columns.busy_ratios, used_bytes):
            self._observe(columns.part(begin, end, self.ledger.levels), goes_on=False)
            self.ledger.end_job()
            self.changes.end_job()
            begin = end
        self._observe(columns.part(begin, len(columns), self.ledger.levels), goes_on=goes_on)
        self.lane.observe_columns(columns)
        if self._has_memory:
            self._memory.observe_columns(columns, used_bytes)

    def _next_batch(self) -> tuple[SampleColumns, list[int | None]]:
        """Return the samples to settle now, and the memory in use at the end of each."""
        cut = self._batch_samples
        columns = SampleColumns(
            self._starts_ns[:cut], self._ends_ns[:cut], self._ratios[:cut], self.ledger.levels
        )
        used_bytes = self._used[:cut]
        for column in (self._starts_ns, self._ends_ns, self._ratios, self._used):
            del column[:cut]
        return columns, used_bytes

    def _observe(self, columns: SampleColumns, *, goes_on: bool) -> None:
        if self.period_ns < LONGEST_WINDOW_NS:
            columns = self._windows_of(columns, goes_on=goes_on)
        self.ledger.observe_columns(columns)
        self.changes.observe_columns(columns)

    def _windows_of(self, columns: SampleColumns, *, goes_on: bool) -> SampleColumns:
        samples = merge_equal_samples([*self._window, *map(columns.sample, range(len(columns)))])
        self._window = samples[-1:] if goes_on else []
        if goes_on:
            del samples[-1:]
        return SampleColumns.of(samples, self.ledger.levels, self.ledger.last_end_ns)[0]
