"""Time of all GPUs by run, integrated tick by tick, as ``/metrics`` shows the time of each GPU.

In every tick, what all labels gained is what the exported counters of the GPUs grew by, to the
nanosecond: time of no run has the label ``NO_RUN``, and that of runs without series ``OTHERS``.
So time that the counter of its GPU does not show yet is held back: while the counter of its cause
is exported as 0 first, and while the GPU has no series because it does not answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from gpumon.core.phase import IdleCause
from gpumon.core.state import NO_RUN, MonitorState, SettledTime
from gpumon.outlets.metrics.first_zero import IDLE, SeriesKey

OTHERS: Final = "_other"
"""The label of all runs that are too many for series of their own."""

TimeOfLabel: TypeAlias = Mapping[IdleCause | None, int]
"""Nanoseconds by cause of idle time; ``None``: busy time."""

_NEW: Final[TimeOfLabel] = MappingProxyType({None: 0})


class TimeByLabel:
    """Adds up settled time by label.

    A total belongs to its label, and is forgotten with it.

    Attributes:
        totals: By label; never altered, but replaced.
    """

    def __init__(self) -> None:
        self.totals: Mapping[str, TimeOfLabel] = {NO_RUN: _NEW}
        self._held: dict[tuple[str, IdleCause | None], Counter[str]] = {}

    def follow(
        self,
        state: MonitorState,
        counted: Collection[str],
        labels: Collection[str],
        zeros: Collection[SeriesKey],
    ) -> Mapping[str, TimeOfLabel]:
        """The totals after this tick.

        Args:
            state: The new tick.
            counted: UUIDs of the GPUs whose counters are exported.
            labels: Of runs with series; those that are missing are forgotten.
            zeros: Series of GPUs that are exported as 0.
        """
        for settled in state.settled:
            self._hold(settled)
        if self.totals.keys() - {NO_RUN, OTHERS} != labels:
            totals = {
                label: times
                for label, times in self.totals.items()
                if label in labels or label in (NO_RUN, OTHERS)
            }
            self.totals = totals | {label: _NEW for label in labels if label not in totals}
        if self._held:
            self._release(counted, labels, zeros)
            known = {gpu.device.uuid for gpu in state.gpus}
            self._held = {key: held for key, held in self._held.items() if key[0] in known}
        return self.totals

    def _hold(self, settled: SettledTime) -> None:
        for (label, cause), amount_ns in settled.by_run.items():
            self._held.setdefault((settled.uuid, cause), Counter())[label] += amount_ns

    def _release(
        self, counted: Collection[str], labels: Collection[str], zeros: Collection[SeriesKey]
    ) -> None:
        grown: dict[str, dict[IdleCause | None, int]] = {}
        for uuid, cause in list(self._held):
            if uuid not in counted or (IDLE, uuid, cause) in zeros:
                continue
            for label, amount_ns in self._held.pop((uuid, cause)).items():
                shown = label if label in labels or label == NO_RUN else OTHERS
                times = grown.get(shown)
                if times is None:
                    times = grown[shown] = dict(self.totals.get(shown, _NEW))
                times[cause] = times.get(cause, 0) + amount_ns
        if grown:
            self.totals = {**self.totals, **grown}
