"""Selects what has series, once a tick: each label set once, and a bounded number of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from gpumon.core.clock import NS_PER_S
from gpumon.core.device.driver_codes import MAX_XIDS
from gpumon.core.owner_quotas import MAX_RUNS_SHOWN, FairSlots, RunCandidate, largest_owners
from gpumon.core.state import UNOWNED, MonitorState, RunState
from gpumon.core.wording import label_text
from gpumon.outlets.metrics.first_zero import FirstZeros
from gpumon.outlets.metrics.gpu_time import (
    ExportedGpus,
    TimeByLabel,
    TimeOfLabel,
    UserSlots,
    users_present,
)
from gpumon.outlets.metrics.metric_values import NOTHING_SELECTED, MetricView, is_counted

MAX_OTHERS: Final = 256
"""GPUs, collectors and driver functions with series: more than any machine has."""


_XIDS: Final = "gpumon_gpu_xid_errors_total"
_ERRORS: Final = "gpumon_nvml_errors_total"
_SCRAPED_WITHIN_NS: Final = 60 * NS_PER_S
"""Longer than the period of most Prometheus servers."""
_Item = TypeVar("_Item")


class LabelBudget:
    """Selects label sets once a tick, and counts the dropped ones.

    Counted by tick, the counter does not depend on the number of scrapers.
    """

    def __init__(self) -> None:
        self._dropped = {"gpumon_gpu": 0, "gpumon_training": 0, "gpumon_collector": 0,
                         "gpumon_nvml_call": 0, _XIDS: 0, _ERRORS: 0}  # fmt: skip
        self._places = FairSlots[str](MAX_RUNS_SHOWN)
        self._first_zeros = FirstZeros()
        self._time_by_run, self._time_by_user = TimeByLabel(), TimeByLabel()
        self._users = UserSlots()

    def select(
        self,
        state: MonitorState,
        before: MetricView = NOTHING_SELECTED,
        scraped_at_ns: int | None = None,
    ) -> MetricView:
        """The parts of this state that may become series.

        Args:
            state: The new tick.
            before: What was selected of the tick before.
            scraped_at_ns: ``taken_at_ns`` of the last tick that was scraped; ``None``: none was.
        """
        collectors = self._keep("gpumon_collector", state.collectors, lambda one: one.name)
        if state.repeats(before.state) and not before.zeros:
            return replace(before, state=state, collectors=collectors)
        for gpu in state.gpus:
            if len(gpu.xid_errors) > MAX_XIDS:
                self._dropped[_XIDS] += len(gpu.xid_errors) - MAX_XIDS
        call_seconds = self._keep("gpumon_nvml_call", state.call_seconds, lambda call: call[0])
        called = dict(call_seconds)
        gpus = self._keep("gpumon_gpu", state.gpus, lambda gpu: gpu.device.uuid)
        runs = self._runs_with_series(state)
        zeros = self._first_zeros.follow(state, gpus, runs, scraped_at_ns)
        exported = ExportedGpus(
            known={gpu.device.uuid for gpu in gpus},
            counted={gpu.device.uuid for gpu in gpus if is_counted(gpu)},
            zeros=zeros,
        )
        for one in state.settled:
            for (label, cause), amount_ns in one.by_run.items():
                self._time_by_run.add(one.uuid, label, cause, amount_ns)
        return MetricView(
            state=state,
            gpus=gpus,
            runs=runs,
            collectors=collectors,
            call_seconds=call_seconds,
            call_counts=tuple(call for call in state.call_counts if call[0] in called),
            call_errors=self._keep(
                _ERRORS, state.call_errors, lambda error: f"{error[0]} {error[1]}"
            ),
            dropped=tuple(self._dropped.items()),
            runs_left_out=largest_owners(self._places.left_out),
            zeros=zeros,
            time_by_run=self._time_by_run.totals(
                dict.fromkeys(run.run for run in runs).keys(), exported
            ),
            time_by_user=self._user_times(state, exported),
        )

    def _user_times(self, state: MonitorState, exported: ExportedGpus) -> Mapping[str, TimeOfLabel]:
        """Time by the name of a user; empty: users are not named."""
        names = state.users
        if names is None:
            return {}
        present = {name for names in users_present(state).values() for name in names}
        for one in state.settled:
            for (uid, cause), amount_ns in one.by_user.items():
                name = UNOWNED if uid is None else names.get(uid, UNOWNED)
                self._time_by_user.add(one.uuid, name, cause, amount_ns)
                present.add(name)
        labels = self._users.follow(sorted(present - {UNOWNED}), state.taken_at_ns)
        return self._time_by_user.totals(labels, exported)

    def _runs_with_series(self, state: MonitorState) -> tuple[RunState, ...]:
        """Living ones first."""
        runs = sorted(state.runs, key=lambda run: not run.alive)
        distinct = self._keep("gpumon_training", runs, lambda run: run.run, len(runs))
        kept = {run.run: run for run in distinct}
        chosen = self._places.choose(
            [
                RunCandidate(
                    run.run, run.owner_uid, _may_still_be_scraped(run, state), run.written_ns
                )
                for run in state.runs
                if kept.get(run.run) is run
            ]
        )
        self._dropped["gpumon_training"] += len(distinct) - len(chosen)
        return tuple(run for run in distinct if run.run in chosen)

    def _keep(
        self,
        family: str,
        items: Iterable[_Item],
        key: Callable[[_Item], str],
        most: int = MAX_OTHERS,
    ) -> tuple[_Item, ...]:
        kept: dict[str, _Item] = {}
        for item in items:
            # Two names may differ only in characters that label_text replaces.
            name = label_text(key(item))
            if name in kept or len(kept) >= most:
                self._dropped[family] += 1
            else:
                kept[name] = item
        return tuple(kept.values())


def _may_still_be_scraped(run: RunState, state: MonitorState) -> bool:
    """Whether it is alive, or ended so recently that its end may not have been scraped."""
    return run.alive is True or state.taken_at_ns - run.written_ns < _SCRAPED_WITHIN_NS
