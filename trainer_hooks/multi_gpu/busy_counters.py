"""How busy a daemon of gpumon says that each GPU of a model was, over a stretch of training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from gpumon.core.ring.runtime_paths import STATE_FILE
from trainer_hooks.ring.daemon_state import fresh_state, gpus_in, state_folders
from trainer_hooks.ring.gpu_shares import gpu_names
from trainer_hooks.ring.process_ring import ring_so_far
from trainer_hooks.ring.run_facts import read_run_facts

_LEAST_PERIODS: Final = 5
"""The driver's figures look back up to a period: in a shorter stretch they are of what was before.
"""


class _Reading(NamedTuple):
    """Counters of each GPU, as of one instant; nanoseconds."""

    daemon: object
    step: int
    taken_ns: int
    period_ns: int
    observed_ns: tuple[int, ...]
    busy_ns: tuple[int, ...]


class BusyCounters:
    """Differences of a daemon's busy counters. Nothing here blocks or raises.

    Args:
        devices: TensorFlow's names, such as ``"GPU:0"``.
        now_ns: CLOCK_MONOTONIC.
    """

    def __init__(self, devices: Sequence[str], *, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._devices = tuple(devices)
        self._now_ns = now_ns
        self._paths = [folder / STATE_FILE for folder in state_folders(os.environ, os.geteuid())]
        self._first: _Reading | None = None
        self._since_ns = 0
        self._is_there = False

    @property
    def is_there(self) -> bool:
        """Whether, at the last look, a daemon ran that knows all these GPUs."""
        return self._is_there

    def forget(self) -> None:
        """What was counted so far says nothing of what comes."""
        self._first = None
        self._since_ns = self._now_ns()

    def busy_seconds(self, step: int) -> tuple[float, ...] | None:
        """How long each GPU was busy in a step, in seconds, since this last told it.

        Args:
            step: Steps that the training has done.

        Returns:
            ``None`` where that is not known, or not for long enough yet.
        """
        before, now = self._first, self._reading(step)
        self._is_there = now is not None
        if now is None or before is None:
            is_of_now = now is not None and now.taken_ns >= self._since_ns
            self._first = now if is_of_now else None  # else it counts what was before
            return None
        observed = [b - a for a, b in zip(before.observed_ns, now.observed_ns, strict=True)]
        busy = [b - a for a, b in zip(before.busy_ns, now.busy_ns, strict=True)]
        if now.daemon != before.daemon or min(*observed, *busy) < 0:  # another counts from 0
            self._first = now
            return None
        if min(observed) < _LEAST_PERIODS * now.period_ns or step <= before.step:
            return None
        self._first = now
        step_s = (now.taken_ns - before.taken_ns) / 1e9 / (step - before.step)
        return tuple(step_s * min(1.0, b / o) for b, o in zip(busy, observed, strict=True))

    def _reading(self, step: int) -> _Reading | None:
        ring = ring_so_far()
        known = None if ring is None or ring.writer is None else ring.writer.facts
        facts = read_run_facts(started_ns=0) if known is None else known
        names = gpu_names(self._devices, facts.gpus)
        if names is None:
            return None
        now_ns = self._now_ns()
        for path in self._paths:
            state = fresh_state(path, facts.boot_id, now_ns)
            if state is not None:
                return _reading_of(state, names, step)
        return None


def _reading_of(state: Mapping[str, Any], names: Sequence[str], step: int) -> _Reading | None:
    """The counters of those GPUs; ``None`` where one is missing, or this is no daemon's state."""
    try:
        known = [*zip(gpus_in(state), state["gpus"], strict=True)]
        gpus = [next(gpu for one, gpu in known if one.is_meant_by(name)) for name in names]
        return _Reading(
            state.get("pid"),
            step,
            int(state["monotonic_ns"]),
            int(state["period_ns"]),
            tuple(int(gpu["observed_ns"]) for gpu in gpus),
            tuple(int(gpu["busy_ns"]) for gpu in gpus),
        )
    except (KeyError, TypeError, ValueError, AttributeError, StopIteration):
        return None
