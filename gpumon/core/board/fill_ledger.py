"""Adds up what one GPU says of how full it is, tick by tick. No clock, no I/O."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, Final

from gpumon.core.board.fill import (
    ACTIVITIES,
    HOLDING_REASONS,
    NO_FILL,
    GpuFill,
    Mean,
    fill_since,
    is_under_filled,
    known_ratio,
)
from gpumon.core.sample import ActivitySample, BusySample, GpuDetails, GpuSample
from gpumon.core.settings.detector import DEFAULT_FILL_SETTINGS, FillSettings

_RECENT_SAMPLES: Final = 64


class FillLedger:
    """One GPU's ``GpuFill``, and whether it is under-filled just now."""

    def __init__(self, settings: FillSettings = DEFAULT_FILL_SETTINGS) -> None:
        self._settings = settings
        self._recent: deque[BusySample] = deque(maxlen=_RECENT_SAMPLES)
        self._activity_until_ns = self._busy_until_ns = self._told_at_ns = 0
        self._fill = NO_FILL
        self._marks = (NO_FILL, NO_FILL)
        self._judged_ns, self._is_now = 0, False

    def observe(self, sample: GpuSample) -> None:
        """Take what the GPU said in one tick; what was taken before changes nothing."""
        if sample.busy:
            self._take_busy(sample)
        if sample.activity is not None:
            self._take_activity(sample.activity)

    def snapshot(self) -> GpuFill | None:
        """The sums so far; ``None`` where nothing was ever told in busy time."""
        return self._fill if self._told_at_ns else None

    def is_under_filled_now(self, now_ns: int) -> bool:
        """Whether the last minute or two of busy time were under-filled, and are not long ago."""
        fill, least_ns = self.snapshot(), self._settings.min_busy_ns
        if fill is None:
            return False
        if fill.observed_ns != self._judged_ns:
            self._judged_ns = fill.observed_ns
            older, newer = self._marks
            self._is_now = is_under_filled(fill_since(older, fill), self._settings)
            if fill.observed_ns - newer.observed_ns >= least_ns:
                self._marks = newer, fill
        return self._is_now and now_ns - self._told_at_ns <= least_ns

    def _take_busy(self, sample: GpuSample) -> None:
        """What the board said in this tick holds for the busy time that the tick brought."""
        busy_ns, until_ns, above = 0, self._busy_until_ns, self._settings.busy_above
        for start_ns, end_ns, busy_ratio in sample.busy:
            if end_ns > until_ns:
                if busy_ratio > above:
                    busy_ns += end_ns - max(start_ns, until_ns)
                until_ns = end_ns
        self._busy_until_ns = until_ns
        self._recent.extend(sample.busy)
        if busy_ns and sample.details is not None:
            self._take_board(sample, sample.details, busy_ns)

    def _take_board(self, sample: GpuSample, details: GpuDetails, busy_ns: int) -> None:
        fill, holding = self._fill, frozenset[str]()
        if details.throttle_reasons is not None:
            holding = HOLDING_REASONS.intersection(details.throttle_reasons)
            fill = _with_held(fill, holding, busy_ns)
        clock = _part(sample.sm_clock_hertz, details.sm_clock_max_hertz)
        if clock is not None:
            fill = fill._replace(sm_clock=_added(fill.sm_clock, clock, busy_ns))
            limit_mw = _milliwatts(details.power_limit_watts)
            drawn_mw = _milliwatts(sample.power_watts)
            is_full = clock >= self._settings.full_clock_from and not holding
            if limit_mw and drawn_mw is not None and is_full:
                fill = fill._replace(
                    power_ns=fill.power_ns + busy_ns,
                    power_mw_ns=fill.power_mw_ns + min(drawn_mw, limit_mw) * busy_ns,
                    power_limit_mw_ns=fill.power_limit_mw_ns + limit_mw * busy_ns,
                )
        if fill is not self._fill:
            self._note(fill, self._busy_until_ns)

    def _take_activity(self, activity: ActivitySample) -> None:
        length_ns = activity.end_ns - max(activity.start_ns, self._activity_until_ns)
        if length_ns <= 0:
            return
        self._activity_until_ns = activity.end_ns
        busy_ratio = known_ratio(activity.graphics_ratio)
        if busy_ratio is None:
            busy_ratio = _busy_ratio_within(activity, self._recent, self._settings.min_cover)
        is_busy = busy_ratio is not None and busy_ratio > self._settings.busy_above
        if not is_busy or known_ratio(activity.sm_active_ratio) is None:
            return
        ratios = {name: known_ratio(getattr(activity, f"{name}_ratio")) for name in ACTIVITIES}
        added: dict[str, Any] = {
            name: _added(getattr(self._fill, name), ratio, length_ns)
            for name, ratio in ratios.items()
            if ratio is not None
        }
        self._note(self._fill._replace(**added), activity.end_ns)

    def _note(self, fill: GpuFill, at_ns: int) -> None:
        self._fill, self._told_at_ns = fill, max(self._told_at_ns, at_ns)


def _with_held(fill: GpuFill, holding: frozenset[str], busy_ns: int) -> GpuFill:
    """The sums with so much busy time, in which these reasons held the clocks down."""
    more = {reason: fill.held_by_ns.get(reason, 0) + busy_ns for reason in holding}
    return fill._replace(
        held_known_ns=fill.held_known_ns + busy_ns,
        held_ns=fill.held_ns + (busy_ns if holding else 0),
        held_by_ns=MappingProxyType({**fill.held_by_ns, **more}) if more else fill.held_by_ns,
    )


def _milliwatts(watts: float | None) -> int | None:
    """Whole milliwatts; ``None`` where there is no answer, or none that can be true."""
    return round(1000 * watts) if watts is not None and 0.0 <= watts < math.inf else None


def _added(mean: Mean, ratio: float, length_ns: int) -> Mean:
    return Mean(mean.known_ns + length_ns, mean.weighted_ns + round(ratio * length_ns))


def _part(value: float | None, whole: float | None) -> float | None:
    """A value of the most it can be, 0 to 1; ``None`` where either is no answer."""
    if value is None or whole is None or not whole > 0:
        return None
    return known_ratio(value / whole)


def _busy_ratio_within(
    activity: ActivitySample, samples: Iterable[BusySample], min_cover: float
) -> float | None:
    """How busy the GPU was in a stretch, by its utilisation; ``None``: too little is known."""
    busy_ns = known_ns = 0.0
    for start_ns, end_ns, busy_ratio in samples:
        inside_ns = min(end_ns, activity.end_ns) - max(start_ns, activity.start_ns)
        if inside_ns > 0:
            busy_ns += busy_ratio * inside_ns
            known_ns += inside_ns
    least_ns = min_cover * (activity.end_ns - activity.start_ns)
    return busy_ns / known_ns if known_ns and known_ns >= least_ns else None
