"""Tells somebody who trains, in one sentence, that his run explains no GPU, and what to set."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from gpumon.core.attribution.visible_devices import BEGINNING_NS, doubt_of_names, doubt_of_work
from gpumon.core.ring_format.events import RunFacts
from trainer_hooks.ring.daemon_state import gpus_in, newest_state, runs_in, state_folders
from trainer_hooks.ring.quiet_warning import warn_quietly


class GpuDoubts:
    """Warns once of a run. Each look reads a daemon's state file once; without one, all is silent.

    Nothing here blocks or raises.
    """

    def __init__(self, *, now_ns: Callable[[], int] = monotonic_ns) -> None:
        self._now_ns = now_ns
        self._has_begun = False
        self._is_settled = False
        self._ended_ns = -BEGINNING_NS

    def of_names(self, facts: RunFacts) -> None:
        """The process has said which GPUs it trains on: are they there?"""
        if facts.gpus is not None:
            self._look(facts, self._of_what_it_said)

    def at_the_start(self, facts: RunFacts) -> None:
        """Its training begins, and all is said of its GPUs that it is going to say."""
        if not self._has_begun:
            self._has_begun = True
            self._look(facts, self._of_what_it_said)

    def at_the_end(self, facts: RunFacts, steps: int) -> None:
        """A training of so many steps is over: was it joined to a GPU?"""
        now_ns = self._now_ns()
        if steps and now_ns - max(facts.started_ns, self._ended_ns) >= BEGINNING_NS:
            self._ended_ns = now_ns  # who fits a hundred times a second need not be looked up so
            self._look(facts, self._of_the_end)

    def _look(
        self, facts: RunFacts, doubt_of: Callable[[dict[str, Any], RunFacts], str | None]
    ) -> None:
        if self._is_settled:
            return
        try:
            folders = state_folders(os.environ, os.geteuid())
            state = newest_state(folders, facts.boot_id, self._now_ns())
            doubt = None if state is None or not state["gpus"] else doubt_of(state, facts)
        except Exception:  # noqa: BLE001 (not what a daemon writes: then nobody can tell)
            doubt = None
        if doubt is not None:
            self._is_settled = True
            warn_quietly(f"to gpumon, this training {doubt}")

    def _of_what_it_said(self, state: dict[str, Any], facts: RunFacts) -> str | None:
        if facts.gpus is None and state["simulated"]:
            return doubt_of_work(None, gpus_in(state), simulated=True, pid=facts.pid)
        return doubt_of_names(facts.gpus, gpus_in(state))

    def _of_the_end(self, state: dict[str, Any], facts: RunFacts) -> str | None:
        runs = runs_in(state, facts)
        if not runs:
            return None
        if any(run["gpus"] for run in runs):
            self._is_settled = True
            return None
        return doubt_of_work(
            facts.gpus,
            gpus_in(state),
            simulated=state["simulated"],
            pid=runs[0]["pid"],
            on_cpu=facts.on_cpu,
        )
