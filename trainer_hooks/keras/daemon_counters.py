"""What a daemon counts of this run's GPUs: the share of an epoch they were busy, and starved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from gpumon.core.ring.events import RunFacts
from gpumon.core.ring.runtime_paths import STATE_FILE
from trainer_hooks.ring.daemon_state import fresh_state, gpus_in, runs_in

_REST_NS: Final = 200_000_000
"""A state younger than this is not read again: the epochs are shorter than the daemon's ticks."""


class _Counters(NamedTuple):
    """What one GPU has counted so far, in nanoseconds."""

    observed_ns: int
    busy_ns: int
    in_use_ns: int
    starved_ns: int


_OfGpus = dict[tuple[object, str], _Counters]
"""By the daemon's process id and the GPU's UUID: another daemon counts from 0."""


class GpuRatios:
    """Differences of a daemon's counters, from one epoch's end to the next.

    Nothing here blocks: a file is opened, read once and closed. No daemon, a
    stale state, one of another boot, or no GPU of this run: no ratio, never 0.
    """

    def __init__(
        self, folders: Sequence[Path], boot_id: str, *, now_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        """Read nothing yet.

        Args:
            folders: Where a daemon's state may lie, best first.
            boot_id: The kernel's present one.
            now_ns: CLOCK_MONOTONIC.
        """
        self._paths = [folder / STATE_FILE for folder in folders]
        self._boot_id = boot_id
        self._now_ns = now_ns
        self._read_at_ns = now_ns() - _REST_NS - 1
        self._before: _OfGpus = {}
        self._last: dict[str, float] = {}

    def begin(self) -> None:
        """An epoch begins: count from here."""
        if self._now_ns() - self._read_at_ns > _REST_NS:
            state = self._state()
            self._before = {} if state is None else _counters_of(state)

    def since_then(self, facts: RunFacts) -> dict[str, float]:
        """``gpu_busy_ratio`` and ``starved_ratio`` of the epoch that ends, 0 to 1, where known.

        Counters that did not move since the last epoch repeat its values.

        Args:
            facts: Which run this is, and which GPUs it said it trains on.
        """
        if self._now_ns() - self._read_at_ns <= _REST_NS:
            return self._last
        state = self._state()
        before, now = self._before, {} if state is None else _counters_of(state)
        ours = [] if state is None else [(state.get("pid"), u) for u in _gpus_of(state, facts)]
        ours = [gpu for gpu in ours if gpu in before and gpu in now]
        spent = [_Counters(*(b - a for a, b in zip(before[g], now[g], strict=True))) for g in ours]
        observed_ns = sum(gpu.observed_ns for gpu in spent)
        if ours and observed_ns == 0:
            return self._last
        self._before = now
        self._last = {}
        if observed_ns > 0:
            self._last["gpu_busy_ratio"] = _ratio(sum(g.busy_ns for g in spent), observed_ns)
        in_use_ns = sum(gpu.in_use_ns for gpu in spent)
        if in_use_ns > 0:
            # Some of it may have been settled now and lost before: never more than was idle.
            starved_ns = sum(min(g.starved_ns, g.observed_ns - g.busy_ns) for g in spent)
            self._last["starved_ratio"] = _ratio(starved_ns, in_use_ns)
        return self._last

    def is_there(self) -> bool:
        """Whether a daemon runs now."""
        return self._state() is not None

    def _state(self) -> dict[str, Any] | None:
        self._read_at_ns = now_ns = self._now_ns()
        states = (fresh_state(path, self._boot_id, now_ns) for path in self._paths)
        return next((state for state in states if state is not None), None)


def _counters_of(state: Mapping[str, Any]) -> _OfGpus:
    """Each GPU's counters; none where the state is not what a daemon writes."""
    try:
        return {
            (state.get("pid"), str(gpu["uuid"])): _Counters(
                int(gpu["observed_ns"]),
                int(gpu["busy_ns"]),
                int(gpu["in_use_ns"]),
                int(gpu["starved_ns"]) + int(gpu["suspected_ns"]),
            )
            for gpu in state["gpus"]
        }
    except (KeyError, TypeError, ValueError):
        return {}


def _gpus_of(state: Mapping[str, Any], facts: RunFacts) -> list[str]:
    """UUIDs of this run's GPUs: as the daemon joined them, else as the run named them."""
    try:
        named = [gpu.uuid for gpu in gpus_in(state) if any(map(gpu.is_meant_by, facts.gpus or ()))]
        return [str(uuid) for run in runs_in(state, facts) for uuid in run["gpus"]] or named
    except (KeyError, TypeError, AttributeError):
        return []


def _ratio(part_ns: int, whole_ns: int) -> float:
    return min(1.0, max(0.0, part_ns / whole_ns))
