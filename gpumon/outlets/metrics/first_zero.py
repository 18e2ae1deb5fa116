"""Counters that start late: each is exported as 0 first, so that no increase is lost.

Idle time of a cause has no series before it was ever above zero, and a run begins at any time.
``rate()`` and ``increase()`` miss what a series already has when it is scraped for the first
time, so it is 0 until one scrape, or a minute.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

from gpumon.core.clock import NS_PER_S
from gpumon.core.state import GpuState, MonitorState, RunState

IDLE: Final = "idle"
INPUT_WAIT: Final = "input_wait"
PHASE: Final = "phase"
THROTTLED: Final = "throttled"
RUN: Final = "run"
NVML_ERROR: Final = "nvml_error"

SeriesKey: TypeAlias = tuple[str, str, Hashable]
"""One of the kinds above, the GPU or run, and the cause, reason, phase, counter or error."""

RUN_COUNTERS: Final = ("steps", "samples", "first_input_wait_ns", "ratio_changes")
_read_run_counters: Final = attrgetter(*RUN_COUNTERS)

_LONGEST_NS: Final = 60 * NS_PER_S
"""How long a series is 0 if it is not scraped: longer than most servers wait between scrapes."""


class FirstZeros:
    """Finds the series that are exported as 0 in this tick."""

    def __init__(self) -> None:
        self._known: dict[Hashable, set[Hashable]] = {}
        self._since_ns: dict[SeriesKey, int] = {}

    def follow(
        self,
        state: MonitorState,
        gpus: Sequence[GpuState],
        runs: Sequence[RunState],
        scraped_at_ns: int | None,
    ) -> frozenset[SeriesKey]:
        """The series that are above zero and exported as 0.

        Args:
            state: The new tick.
            gpus: Those with series.
            runs: Those with series.
            scraped_at_ns: ``taken_at_ns`` of the last tick that was scraped; ``None``: none was.
        """
        now_ns = state.taken_at_ns
        self._since_ns = {
            key: since_ns
            for key, since_ns in self._since_ns.items()
            if now_ns - since_ns < _LONGEST_NS and not _is_within(since_ns, scraped_at_ns)
        }
        known: dict[Hashable, set[Hashable]] = {}
        for owner, amounts, is_old in _owners(state, gpus, runs):
            risen = self._known.get(owner)
            if risen is None:
                risen = {name for name, amount in amounts.items() if amount} if is_old else set()
            known[owner] = risen
            if not risen.issuperset(amounts):
                new = [name for name, amount in amounts.items() if amount and name not in risen]
                risen.update(new)
                self._since_ns.update({(*owner[:2], name): now_ns for name in new})
        self._known = known
        return frozenset(self._since_ns)


def _is_within(since_ns: int, scraped_at_ns: int | None) -> bool:
    return scraped_at_ns is not None and since_ns <= scraped_at_ns


def _owners(
    state: MonitorState, gpus: Sequence[GpuState], runs: Sequence[RunState]
) -> Iterator[tuple[tuple[str, str, int], Mapping[Any, int], bool]]:
    """What has series of several names: its key, its amounts, and whether they began long ago."""
    for gpu in gpus:
        yield (IDLE, gpu.device.uuid, 0), gpu.totals.idle_ns, False
        yield (INPUT_WAIT, gpu.device.uuid, 0), gpu.totals.input_wait_by_reason_ns, False
        yield (THROTTLED, gpu.device.uuid, 0), gpu.board.throttled_ns, False
    for run in runs:
        # A run may be older than the daemon: then what it has is no increase.
        is_old = run.wall_ns > _LONGEST_NS
        yield (PHASE, run.run, run.pid), run.phase_ns, is_old
        named = zip(RUN_COUNTERS, _read_run_counters(run), strict=True)
        counts = {name: count for name, count in named if count}
        yield (RUN, run.run, run.pid), counts, is_old
    errors = {(function, code): count for function, code, count in state.call_errors}
    yield (NVML_ERROR, "", 0), errors, False
