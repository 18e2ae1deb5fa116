"""SM utilisation: how much of a GPU works while it is busy, as sums over its busy time.

Utilisation only shows that *some* kernel ran. A kernel on one of 132 multiprocessors makes a GPU
100 % busy, so training may become twice as fast while utilisation goes from 96 to 100 %. Two
figures show more:

* **activity** (GPM, Hopper and later): the share of the multiprocessors that had work. A window
  counts if the GPU was busy for more than ``FillSettings.busy_above`` of it, by the window's own
  ``graphics_ratio``, else by utilisation samples that cover at least half of it. Each nanosecond
  counts once, even if it is reported twice.
* **power** without activity: the draw relative to the limit, over time that was completely busy, at
  full clock, with nothing reducing it. Power is a mean, pauses included: that of the last second
  (``GpuSample.power_over_ns``), or of the complete tick. If the GPU was partly idle in that time,
  it is not the power of the busy time.

Windows that were partly idle are left out, not divided by their busy share: that would need two
clocks of the driver to agree. Sums are whole nanoseconds (and milliwatt-nanoseconds), so they
close, and no order of windows changes them. Nothing here is lost time: busy stays busy.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from operator import sub
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.core.device.driver_codes import SLOWDOWNS
from gpumon.core.sample import ActivitySample, BusySample, GpuDetails, GpuSample
from gpumon.core.settings.detector import DEFAULT_FILL_SETTINGS, FillSettings
from gpumon.core.settings.rule import RuleKind, rule

CLOCK_REDUCING_REASONS: Final = frozenset({"sw_power_cap", *SLOWDOWNS})
"""Throttle reasons that slow down a GPU at work. Clocks that a user has set are left out: they are
intended, and a clock that they keep low is no full clock."""


class Evidence(str, Enum):
    """The measurement behind a finding."""

    GPM = "gpm"
    POWER = "power"


class Mean(NamedTuple):
    """A mean over time, as sums.

    Attributes:
        known_ns: Time over which the value is known.
        weighted_ns: The value, 0 to 1, times that time.
    """

    known_ns: int = 0
    weighted_ns: int = 0

    @property
    def ratio(self) -> float | None:
        return self.weighted_ns / self.known_ns if self.known_ns else None


ACTIVITIES: Final = ("sm_active", "sm_occupancy", "tensor_active", "memory_bandwidth")
"""What GPM measures, as fields of ``GpuFill``."""
_RECENT_SAMPLES: Final = 64
_NONE: Final = Mean()
_NO_REASONS: Final[Mapping[str, int]] = MappingProxyType({})


class GpuFill(NamedTuple):
    """Sums over one GPU's busy time since observation began. They only grow.

    Attributes:
        sm_active: Share of the multiprocessors that had work; its ``known_ns`` is the time for
            which activity is known.
        sm_occupancy: Resident warps, of the maximum.
        tensor_active: Share of the time in which the tensor cores worked.
        memory_bandwidth: Memory bandwidth in use, of the maximum.
        power_ns: Time of completely busy ticks at full clock, not held down, with power and its
            limit known.
        power_mw_ns: Power draw in it, milliwatts times nanoseconds.
        power_limit_mw_ns: Its limit, likewise.
        drawn_ns: Time of completely busy ticks with power known, at any clock.
        drawn_mw_ns: Power draw in it.
        sm_clock: Clock of the multiprocessors, of the maximum, over all busy time.
        throttle_known_ns: Busy time for which the throttle reasons are known.
        throttled_ns: The part of it in which one of ``CLOCK_REDUCING_REASONS`` applied.
        throttled_by_ns: The same, by reason; several may apply at a time.
    """

    sm_active: Mean = _NONE
    sm_occupancy: Mean = _NONE
    tensor_active: Mean = _NONE
    memory_bandwidth: Mean = _NONE
    power_ns: int = 0
    power_mw_ns: int = 0
    power_limit_mw_ns: int = 0
    drawn_ns: int = 0
    drawn_mw_ns: int = 0
    sm_clock: Mean = _NONE
    throttle_known_ns: int = 0
    throttled_ns: int = 0
    throttled_by_ns: Mapping[str, int] = _NO_REASONS

    @property
    def evidence(self) -> Evidence | None:
        """The available measurement; ``None``: none."""
        if self.sm_active.known_ns:
            return Evidence.GPM
        return Evidence.POWER if self.power_ns else None

    @property
    def observed_ns(self) -> int:
        """Busy time that the evidence covers."""
        return self.sm_active.known_ns or self.power_ns

    @property
    def power_ratio(self) -> float | None:
        """Mean power, of its limit, 0 to 1; ``None`` where unknown."""
        if not self.power_limit_mw_ns:
            return None
        return self.power_mw_ns / self.power_limit_mw_ns

    @property
    def power_watts(self) -> float | None:
        return self.power_mw_ns / self.power_ns / 1000.0 if self.power_ns else None

    @property
    def power_limit_watts(self) -> float | None:
        return self.power_limit_mw_ns / self.power_ns / 1000.0 if self.power_ns else None

    @property
    def drawn_watts(self) -> float | None:
        return self.drawn_mw_ns / self.drawn_ns / 1000.0 if self.drawn_ns else None

    @property
    def throttled_ratio(self) -> float | None:
        """Share of the busy time in which the clocks were reduced; ``None``: unknown."""
        return self.throttled_ns / self.throttle_known_ns if self.throttle_known_ns else None


NO_FILL: Final = GpuFill()


@rule(
    "held_down",
    RuleKind.FINDING,
    says="heat or power holds the GPU's clocks down",
    evidence="The share of its busy time in which the driver named such a reason.",
    thresholds=("fill.min_busy_ns", "fill.held_share"),
    measured_with=("fill.busy_above",),
)
def are_clocks_reduced(fill: GpuFill, settings: FillSettings = DEFAULT_FILL_SETTINGS) -> bool:
    """Whether heat or power held the clocks down for so long that this is the finding."""
    return (
        fill.throttle_known_ns >= settings.min_busy_ns
        and fill.throttled_ns >= settings.held_share * fill.throttle_known_ns
    )


@rule(
    "under_filled",
    RuleKind.FINDING,
    says="the GPU is busy, and little of it works",
    evidence="The share of the multiprocessors that had work while it was busy; on boards "
    "without that figure, the power it drew of its limit at full clock, in time that was busy "
    "throughout.",
    thresholds=(
        "fill.min_busy_ns",
        "fill.sm_active_below",
        "fill.memory_bound_from",
        "fill.power_below",
        "fill.held_share",
    ),
    measured_with=("fill.busy_above", "fill.full_clock_from", "fill.min_cover"),
)
def is_under_filled(fill: GpuFill | None, settings: FillSettings = DEFAULT_FILL_SETTINGS) -> bool:
    """Whether the GPU was busy with low SM utilisation; in doubt not.

    >>> busy_ns = 120 * 10**9
    >>> is_under_filled(GpuFill(sm_active=Mean(busy_ns, busy_ns // 4)))
    True
    >>> is_under_filled(GpuFill(sm_active=Mean(busy_ns, busy_ns // 4 * 3)))
    False
    """
    if (
        fill is None
        or fill.observed_ns < settings.min_busy_ns
        or are_clocks_reduced(fill, settings)
    ):
        return False
    if fill.evidence is Evidence.GPM:
        active, memory = fill.sm_active.ratio, fill.memory_bandwidth.ratio
        is_low = active is not None and active < settings.sm_active_below
        # Where the memory's bandwidth is the limit, more multiprocessors would not help.
        return is_low and (memory is None or memory < settings.memory_bound_from)
    power = fill.power_ratio
    return power is not None and power < settings.power_below


def fill_since(before: GpuFill | None, after: GpuFill | None) -> GpuFill | None:
    """Return what was added between two readings of one GPU's sums; ``None``: nothing."""
    if after is None or before is None:
        return after
    since = GpuFill(*map(_grown, before, after))
    return None if since == NO_FILL else since


def _grown(before: Any, after: Any) -> Any:  # noqa: ANN401
    """How much a field of ``GpuFill`` grew."""
    if isinstance(after, Mean):
        return Mean(*map(sub, after, before))
    if isinstance(after, Mapping):
        grown = {key: ns - before.get(key, 0) for key, ns in after.items()}
        return {key: ns for key, ns in grown.items() if ns}
    return after - before


def known_ratio(raw: float | None) -> float | None:
    """Clamp a share to 0 to 1; ``None`` for what is no number."""
    return min(1.0, max(0.0, raw)) if raw is not None and math.isfinite(raw) else None


class _TickPower(NamedTuple):
    """The power of a tick that was busy for as long as the power is a mean of, until it counts.

    Attributes:
        length_ns: For how long the GPU had been busy without a break, within the tick.
        drawn_mw: Mean draw, in milliwatts.
        limit_mw: Its limit; ``None`` if the clock was not full, or something held it down.
    """

    length_ns: int
    drawn_mw: int
    limit_mw: int | None


class FillLedger:
    """One GPU's ``GpuFill``, and whether its SM utilisation is low now."""

    def __init__(self, settings: FillSettings = DEFAULT_FILL_SETTINGS) -> None:
        self._settings = settings
        self._recent: deque[BusySample] = deque(maxlen=_RECENT_SAMPLES)
        self._activity_until_ns = self._busy_until_ns = self._measured_at_ns = 0
        self._fill = NO_FILL
        self._marks = (NO_FILL, NO_FILL)
        self._checked_ns, self._is_now = 0, False
        self._tick_power: _TickPower | None = None

    def observe(self, sample: GpuSample) -> None:
        """Add the sample of one tick; a repeated value changes nothing."""
        if sample.busy:
            self._add_busy(sample)
        if sample.activity is not None:
            self._add_activity(sample.activity)

    def snapshot(self) -> GpuFill | None:
        """Return the sums so far; ``None``: nothing was measured in busy time."""
        return self._fill if self._measured_at_ns else None

    def is_under_filled_now(self, now_ns: int) -> bool:
        """Whether SM utilisation was low in the last minute or two of busy time, not long ago."""
        fill, min_ns = self.snapshot(), self._settings.min_busy_ns
        if fill is None:
            return False
        if fill.observed_ns != self._checked_ns:
            self._checked_ns = fill.observed_ns
            older, newer = self._marks
            self._is_now = is_under_filled(fill_since(older, fill), self._settings)
            if fill.observed_ns - newer.observed_ns >= min_ns:
                self._marks = newer, fill
        return self._is_now and now_ns - self._measured_at_ns <= min_ns

    def _add_busy(self, sample: GpuSample) -> None:
        """Apply the board's values of this tick to the busy time of the tick."""
        since_ns = self._busy_until_ns or sample.busy[0].start_ns
        busy_ns, until_ns, above = 0, since_ns, self._settings.busy_above
        steady_since_ns = since_ns  # since when it has been busy without a break
        for start_ns, end_ns, busy_ratio in sample.busy:
            if end_ns > until_ns:
                if busy_ratio <= above:
                    steady_since_ns = end_ns
                else:
                    busy_ns += end_ns - max(start_ns, until_ns)
                    steady_since_ns = start_ns if start_ns > until_ns else steady_since_ns
                until_ns = end_ns
        if until_ns == since_ns:
            return
        if self._tick_power is not None:
            self._count_tick_power(self._tick_power, sample.busy, since_ns)
            self._tick_power = None
        self._busy_until_ns = until_ns
        self._recent.extend(sample.busy)
        if busy_ns and sample.details is not None:
            mean_ns = sample.power_over_ns or until_ns - since_ns
            steady_ns = until_ns - steady_since_ns
            is_of_work = steady_ns >= min(mean_ns, until_ns - since_ns)
            self._add_board(sample, sample.details, busy_ns, steady_ns if is_of_work else 0)

    def _count_tick_power(
        self, power: _TickPower, busy: Sequence[BusySample], since_ns: int
    ) -> None:
        """Count the power of the tick before, if the GPU was still busy right after it.

        Power is known up to the tick, utilisation up to its newest sample, which ends a little
        earlier: the first sample of this tick shows how busy the GPU was in between.
        """
        following = next(one for one in busy if one.end_ns > since_ns)
        if following.start_ns > since_ns or following.busy_ratio <= self._settings.busy_above:
            return
        fill, (length_ns, drawn_mw, limit_mw) = self._fill, power
        full_ns, max_mw = (length_ns, limit_mw) if limit_mw else (0, 0)
        counted = fill._replace(
            drawn_ns=fill.drawn_ns + length_ns,
            drawn_mw_ns=fill.drawn_mw_ns + drawn_mw * length_ns,
            power_ns=fill.power_ns + full_ns,
            power_mw_ns=fill.power_mw_ns + min(drawn_mw, max_mw) * full_ns,
            power_limit_mw_ns=fill.power_limit_mw_ns + max_mw * full_ns,
        )
        self._note(counted, since_ns)

    def _add_board(
        self, sample: GpuSample, details: GpuDetails, busy_ns: int, powered_ns: int
    ) -> None:
        """Add the board's values for ``busy_ns``, and its power for ``powered_ns`` of that."""
        fill, reducing = self._fill, frozenset[str]()
        if details.throttle_reasons is not None:
            reducing = CLOCK_REDUCING_REASONS.intersection(details.throttle_reasons)
            fill = _with_throttling(fill, reducing, busy_ns)
        clock = _part(sample.sm_clock_hertz, details.sm_clock_max_hertz)
        if clock is not None:
            fill = fill._replace(sm_clock=_added(fill.sm_clock, clock, busy_ns))
        if fill is not self._fill:
            self._note(fill, self._busy_until_ns)
        drawn_mw = _milliwatts(sample.power_watts)
        if powered_ns and drawn_mw is not None:
            is_full = clock is not None and clock >= self._settings.full_clock_from and not reducing
            limit_mw = _milliwatts(details.power_limit_watts) if is_full else None
            self._tick_power = _TickPower(powered_ns, drawn_mw, limit_mw)

    def _add_activity(self, activity: ActivitySample) -> None:
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
        self._fill, self._measured_at_ns = fill, max(self._measured_at_ns, at_ns)


def _with_throttling(fill: GpuFill, reducing: frozenset[str], busy_ns: int) -> GpuFill:
    """Add busy time in which these reasons held the clocks down."""
    more = {reason: fill.throttled_by_ns.get(reason, 0) + busy_ns for reason in reducing}
    return fill._replace(
        throttle_known_ns=fill.throttle_known_ns + busy_ns,
        throttled_ns=fill.throttled_ns + (busy_ns if reducing else 0),
        throttled_by_ns=MappingProxyType({**fill.throttled_by_ns, **more})
        if more
        else fill.throttled_by_ns,
    )


def _milliwatts(watts: float | None) -> int | None:
    """Convert to whole milliwatts; ``None``: no valid answer."""
    return round(1000 * watts) if watts is not None and 0.0 <= watts < math.inf else None


def _added(mean: Mean, ratio: float, length_ns: int) -> Mean:
    return Mean(mean.known_ns + length_ns, mean.weighted_ns + round(ratio * length_ns))


def _part(value: float | None, whole: float | None) -> float | None:
    """Divide a value by its maximum; ``None``: one of them is unknown."""
    if value is None or whole is None or not whole > 0:
        return None
    return known_ratio(value / whole)


def _busy_ratio_within(
    activity: ActivitySample, samples: Iterable[BusySample], min_cover: float
) -> float | None:
    """Return how busy the GPU was in a window, by its samples; ``None``: too few."""
    busy_ns = known_ns = 0.0
    for start_ns, end_ns, busy_ratio in samples:
        inside_ns = min(end_ns, activity.end_ns) - max(start_ns, activity.start_ns)
        if inside_ns > 0:
            busy_ns += busy_ratio * inside_ns
            known_ns += inside_ns
    min_ns = min_cover * (activity.end_ns - activity.start_ns)
    return busy_ns / known_ns if known_ns and known_ns >= min_ns else None
