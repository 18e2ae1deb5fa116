"""Time of all GPUs by run or user, integrated tick by tick, as ``/metrics`` shows that of each GPU.

In every tick, what all labels gained is what the exported counters of the GPUs grew by, to the
nanosecond: time of no run or user has the label ``UNOWNED``, and that of those without series
``OTHERS``. So time that the counter of its GPU does not show yet is held back: while the counter
of its cause is exported as 0 first, and while the GPU has no series because it does not answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, KeysView, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.phase import IdleCause
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.core.state import UNOWNED, MonitorState
from gpumon.outlets.metrics.first_zero import IDLE, SeriesKey

OTHERS: Final = "_other"
"""The label of all runs, or users, that are too many for series of their own."""
MAX_USERS_SHOWN: Final = 64
"""Users that have series of their own."""

TimeOfLabel: TypeAlias = Mapping[IdleCause | None, int]
"""Nanoseconds by cause of idle time; ``None``: busy time."""
_NEW: Final[TimeOfLabel] = MappingProxyType({None: 0})


class ExportedGpus(NamedTuple):
    """What the exported counters of GPUs do not show in a tick.

    Attributes:
        known: UUIDs of all GPUs.
        counted: UUIDs of those whose counters are exported.
        zeros: Series that are exported as 0.
    """

    known: Collection[str]
    counted: Collection[str]
    zeros: Collection[SeriesKey]


class TimeByLabel:
    """Adds up settled time by label.

    A total belongs to its label, and is forgotten with it.
    """

    def __init__(self) -> None:
        self._totals: Mapping[str, TimeOfLabel] = {UNOWNED: _NEW}  # replaced, never altered
        self._held: dict[tuple[str, IdleCause | None], Counter[str]] = {}

    def add(self, uuid: str, label: str, cause: IdleCause | None, amount_ns: int) -> None:
        """Add what was settled of one GPU."""
        self._held.setdefault((uuid, cause), Counter())[label] += amount_ns

    def totals(self, labels: KeysView[str], gpus: ExportedGpus) -> Mapping[str, TimeOfLabel]:
        """What is exported after a tick; labels other than these are forgotten."""
        if self._totals.keys() - {UNOWNED, OTHERS} != labels:
            kept = {*labels, UNOWNED, OTHERS}
            totals = {label: times for label, times in self._totals.items() if label in kept}
            self._totals = totals | {label: _NEW for label in labels if label not in totals}
        if self._held:
            self._release(labels, gpus)
        return self._totals

    def _release(self, labels: KeysView[str], gpus: ExportedGpus) -> None:
        grown: dict[str, dict[IdleCause | None, int]] = {}
        for key in list(self._held):
            uuid, cause = key
            if uuid in gpus.known and (uuid not in gpus.counted or (IDLE, *key) in gpus.zeros):
                continue
            held = self._held.pop(key)
            for label, amount_ns in held.items() if uuid in gpus.known else ():
                shown = label if label in labels or label == UNOWNED else OTHERS
                if shown not in grown:
                    grown[shown] = dict(self._totals.get(shown, _NEW))
                grown[shown][cause] = grown[shown].get(cause, 0) + amount_ns
        if grown:
            self._totals = {**self._totals, **grown}


class UserSlots:
    """The users that have series: the first ones.

    If there are too many, who has been on no GPU for ``KEEP_ENDED_NS`` makes room.
    """

    def __init__(self, slots: int = MAX_USERS_SHOWN) -> None:
        self._slots = slots
        self._seen_ns: dict[str, int] = {}

    def follow(self, names: Iterable[str], now_ns: int) -> KeysView[str]:
        """Users with series, after these were on GPUs."""
        for name in names:
            if name not in self._seen_ns and len(self._seen_ns) >= self._slots:
                longest_gone = min(self._seen_ns, key=self._seen_ns.__getitem__)
                if now_ns - self._seen_ns[longest_gone] <= KEEP_ENDED_NS:
                    continue
                del self._seen_ns[longest_gone]
            self._seen_ns[name] = now_ns
        return self._seen_ns.keys()


def users_present(state: MonitorState) -> dict[str, list[str]]:
    """The users on each GPU that answers, by UUID: owners of processes, and of living runs.

    Empty: users are not named.
    """
    names = state.users
    if names is None:
        return {}
    uids: dict[str, set[int | None]] = {
        gpu.device.uuid: {process.uid for process in gpu.latest.processes or ()}
        for gpu in state.gpus
        if gpu.present and gpu.latest is not None
    }
    for run in state.runs:
        for uuid in uids.keys() & run.gpu_uuids if run.alive else ():
            uids[uuid].add(run.owner_uid)
    return {
        uuid: sorted({names[uid] for uid in found if uid is not None and uid in names})
        for uuid, found in uids.items()
    }
