"""Counters beside a board's gauges: time with reduced clocks, activity, bytes over its links.

A gauge shows the moment of a scrape. These are summed in the daemon, so that no time between two
scrapes is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample

_LONGEST_NS: Final = 90 * NS_PER_S
"""Between two readings: after more, their values say nothing about the time in between."""

ACTIVITIES: Final = ("sm_active", "sm_occupancy", "tensor_active", "memory_bandwidth")
"""Ratios of ``ActivitySample``, without ``_ratio``."""
TRANSFERS: Final = (
    "pcie_transmitted",
    "pcie_received",
    "nvlink_transmitted",
    "nvlink_received",
)
"""Rates of ``GpuDetails``, without ``_bytes_per_second``."""

_NOTHING: Mapping[str, int] = MappingProxyType({})


class BoardCounters(NamedTuple):
    """Sums since observation began.

    Attributes:
        throttled_ns: Time with reduced clocks by reason; reasons that never held are left out.
        activity_ns: Ratios times time, by the names of ``ACTIVITIES``; a ratio that the board
            never answered is left out.
        transferred_bytes: By the names of ``TRANSFERS``, likewise.
    """

    throttled_ns: Mapping[str, int] = _NOTHING
    activity_ns: Mapping[str, int] = _NOTHING
    transferred_bytes: Mapping[str, int] = _NOTHING


NO_COUNTERS: Final = BoardCounters()


class BoardLedger:
    """One GPU's ``BoardCounters``."""

    def __init__(self) -> None:
        self.counters = NO_COUNTERS
        self._details: GpuDetails | None = None
        self._activity_until_ns = 0

    def observe(self, sample: GpuSample) -> None:
        """Add what was read since the last sample; a repeated value changes nothing."""
        if sample.details is not None and sample.details is not self._details:
            self._add_details(sample.details)
        if sample.activity is not None and sample.activity.end_ns > self._activity_until_ns:
            self._add_activity(sample.activity)

    def _add_details(self, details: GpuDetails) -> None:
        before, self._details = self._details, details
        if before is None:
            return
        length_ns = details.read_at_ns - before.read_at_ns
        if not 0 < length_ns <= _LONGEST_NS:
            return
        # A reason at one of two readings held for half of the time between them.
        throttled_ns = dict(self.counters.throttled_ns)
        for reasons in (before.throttle_reasons, details.throttle_reasons):
            for reason in reasons or ():
                throttled_ns[reason] = throttled_ns.get(reason, 0) + length_ns // 2
        transferred = dict(self.counters.transferred_bytes)
        for name in TRANSFERS:
            rate = getattr(details, f"{name}_bytes_per_second")
            if rate is not None:  # over the time since the reading before
                transferred[name] = transferred.get(name, 0) + round(rate * seconds(length_ns))
        self.counters = self.counters._replace(
            throttled_ns=throttled_ns, transferred_bytes=transferred
        )

    def _add_activity(self, activity: ActivitySample) -> None:
        length_ns = activity.end_ns - max(activity.start_ns, self._activity_until_ns)
        self._activity_until_ns = activity.end_ns
        activity_ns = dict(self.counters.activity_ns)
        for name in ACTIVITIES:
            ratio = getattr(activity, f"{name}_ratio")
            if ratio is not None:
                activity_ns[name] = activity_ns.get(name, 0) + round(ratio * length_ns)
        self.counters = self.counters._replace(activity_ns=activity_ns)
