"""The daemon's counters for this run's GPUs, as differences over an epoch or some steps.

Nothing here blocks or raises: a file is opened, read once and closed. Without a daemon, a fresh
state of this boot, or a GPU of this run, there is no answer, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from gpumon.core.ring_format.events import RunFacts
from trainer_hooks.ring.daemon_state import (
    NOT_A_STATE,
    gpu_names,
    gpus_in,
    newest_state,
    runs_in,
    state_folders,
)
from trainer_hooks.ring.process_ring import ring_so_far
from trainer_hooks.ring.run_facts import read_run_facts

_REST_NS: Final = 200_000_000
"""A state younger than this is not read again: short epochs end within one tick of the daemon."""
_LEAST_PERIODS: Final = 5
"""The driver's figures cover up to one past period, so a shorter interval mostly shows the past."""


class _Counters(NamedTuple):
    """Nanoseconds counted for one GPU: in total, or between two snapshots."""

    observed_ns: int
    busy_ns: int
    in_use_ns: int
    starved_ns: int


_GpuOfDaemon = tuple[object, str]
"""The daemon's process id and the GPU's UUID: another daemon counts from 0."""


class GpuRatios:
    """GPU busy and starved ratios of a run, per epoch."""

    def __init__(
        self, folders: Sequence[Path], boot_id: str, *, now_ns: Callable[[], int] = monotonic_ns
    ) -> None:
        """Look for a daemon's state in ``folders``, best first; ``boot_id`` is this kernel's."""
        self._folders = folders
        self._boot_id = boot_id
        self._now_ns = now_ns
        self._read_at_ns = now_ns() - _REST_NS - 1
        self._before: dict[_GpuOfDaemon, _Counters] = {}
        self._last: dict[str, float] = {}

    def begin(self) -> None:
        if self._now_ns() - self._read_at_ns > _REST_NS:
            self._before = _counters_in(self._state())

    def since_then(self, facts: RunFacts) -> dict[str, float]:
        """Return ``gpu_busy_ratio`` and ``starved_ratio`` of the epoch that ends, where known.

        If the counters have not moved since the last epoch, its values are repeated.

        Args:
            facts: Identify the run and the GPUs it named.
        """
        if self._now_ns() - self._read_at_ns <= _REST_NS:
            return self._last
        state = self._state()
        before, now, ours = self._before, _counters_in(state), _gpus_of(state, facts)
        spent = [
            _spent(before[gpu], counters)
            for gpu, counters in now.items()
            if gpu in before and gpu[1] in ours
        ]
        observed_ns = sum(gpu.observed_ns for gpu in spent)
        if spent and observed_ns == 0:
            return self._last
        self._before = now
        self._last = {}
        if observed_ns > 0:
            self._last["gpu_busy_ratio"] = _ratio(sum(g.busy_ns for g in spent), observed_ns)
        in_use_ns = sum(gpu.in_use_ns for gpu in spent)
        if in_use_ns > 0:
            # Some starved time is settled late: never report more than was idle in this epoch.
            starved_ns = sum(min(g.starved_ns, g.observed_ns - g.busy_ns) for g in spent)
            self._last["starved_ratio"] = _ratio(starved_ns, in_use_ns)
        return self._last

    def is_there(self) -> bool:
        return bool(self._state())

    def _state(self) -> Mapping[str, Any]:
        self._read_at_ns = now_ns = self._now_ns()
        return newest_state(self._folders, self._boot_id, now_ns) or {}


class _Look(NamedTuple):
    """Counters of some GPUs at one time, CLOCK_MONOTONIC in nanoseconds.

    Attributes:
        settled_ns: How far the counters of all of them reach, some seconds before ``taken_ns``.
    """

    step: int
    taken_ns: int
    settled_ns: int
    period_ns: int
    gpus: list[_GpuOfDaemon]
    counters: list[_Counters]


class BusyCounters:
    """How long each GPU of a model was busy in a step, from the daemon's counters.

    ``devices`` are TensorFlow's names, such as ``"GPU:0"``.

    Attributes:
        is_there: Whether a daemon that knows all these GPUs ran at the last call.
    """

    def __init__(self, devices: Sequence[str], *, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._devices = tuple(devices)
        self._now_ns = now_ns
        self._folders = state_folders(os.environ, os.geteuid())
        self._first: _Look | None = None
        self._since_ns = 0
        self.is_there = False

    def forget(self) -> None:
        """Drop what was counted so far: it does not describe the coming steps."""
        self._first = None
        self._since_ns = self._now_ns()

    def busy_seconds(self, step: int) -> tuple[float, ...] | None:
        """Return the busy seconds of each GPU per step since the last answer.

        The run has done ``step`` steps. ``None``: unknown, or too little time has passed.
        """
        before, now = self._first, self._look(step)
        self.is_there = now is not None
        if now is None or before is None:
            is_of_now = now is not None and now.settled_ns >= self._since_ns
            self._first = now if is_of_now else None  # else it counts what was before
            return None
        spent = list(map(_spent, before.counters, now.counters))
        lost = any(gpu.observed_ns < 0 or gpu.busy_ns < 0 for gpu in spent)
        if now.gpus != before.gpus or lost:  # another daemon counts from 0
            self._first = now
            return None
        shortest_ns = min(gpu.observed_ns for gpu in spent)
        if shortest_ns < _LEAST_PERIODS * now.period_ns or step <= before.step:
            return None
        self._first = now
        step_s = (now.taken_ns - before.taken_ns) / 1e9 / (step - before.step)
        return tuple(step_s * min(1.0, gpu.busy_ns / gpu.observed_ns) for gpu in spent)

    def _look(self, step: int) -> _Look | None:
        ring = ring_so_far()
        known = None if ring is None or ring.writer is None else ring.writer.facts
        facts = read_run_facts(started_ns=0) if known is None else known
        names = gpu_names(self._devices, facts.gpus)
        state = newest_state(self._folders, facts.boot_id, self._now_ns())
        return None if names is None or state is None else _look_at(state, names, step)


def _look_at(state: Mapping[str, Any], names: Sequence[str], step: int) -> _Look | None:
    """Return those GPUs' counters; ``None`` if one is missing or the state is not a daemon's."""
    try:
        known, counters = gpus_in(state), _counters_in(state)
        meant = [next(gpu for gpu in known if gpu.is_meant_by(name)) for name in names]
        gpus: list[_GpuOfDaemon] = [(state.get("pid"), gpu.uuid) for gpu in meant]
        taken_ns, period_ns = int(state["monotonic_ns"]), int(state["period_ns"])
        uuids = {uuid for _, uuid in gpus}
        ours = [gpu for gpu in state["gpus"] if str(gpu["uuid"]) in uuids]
        # An older daemon does not report it: then its counters reach almost up to the state.
        settled_ns = min(int(gpu.get("settled_until_ns") or taken_ns) for gpu in ours)
        looked_at = [counters[gpu] for gpu in gpus]
        return _Look(step, taken_ns, min(taken_ns, settled_ns), period_ns, gpus, looked_at)
    except (StopIteration, *NOT_A_STATE):
        return None


def _counters_in(state: Mapping[str, Any]) -> dict[_GpuOfDaemon, _Counters]:
    """Return each GPU's counters; empty if the state is not a daemon's."""
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
    except NOT_A_STATE:
        return {}


def _spent(before: _Counters, now: _Counters) -> _Counters:
    return _Counters(*(b - a for a, b in zip(before, now, strict=True)))


def _gpus_of(state: Mapping[str, Any], facts: RunFacts) -> list[str]:
    """Return the UUIDs of this run's GPUs as bound by the daemon, else as named by the run."""
    try:
        named = [gpu.uuid for gpu in gpus_in(state) if any(map(gpu.is_meant_by, facts.gpus or ()))]
        return [str(uuid) for run in runs_in(state, facts) for uuid in run["gpus"]] or named
    except NOT_A_STATE:
        return []


def _ratio(part_ns: int, whole_ns: int) -> float:
    return min(1.0, max(0.0, part_ns / whole_ns))
