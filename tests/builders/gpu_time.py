"""The law of GPU time by run and by user, checked tick by tick as ``/metrics`` shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from gpumon.core.owner_quotas import FairSlots
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, Device, Frame
from gpumon.core.stacks.reading import NO_STACKS, StacksReading
from gpumon.core.state import UNOWNED, MonitorState
from gpumon.outlets.metrics.gpu_time import OTHERS, UserSlots
from gpumon.outlets.metrics.label_budget import LabelBudget
from gpumon.outlets.metrics.metric_table import METRICS
from gpumon.outlets.metrics.metric_values import NOTHING_SELECTED, MetricView
from tests.builders.monitor import ADA, Phases, Story
from tests.builders.time import s

OBSERVED, PENDING = "gpumon_gpu_observed_seconds_total", "gpumon_gpu_idle_pending_seconds"
GPU_BUSY, GPU_IDLE = "gpumon_gpu_busy_seconds_total", "gpumon_gpu_idle_seconds_total"
RUN_BUSY = "gpumon_training_gpu_busy_seconds_total"
RUN_IDLE = "gpumon_training_gpu_idle_seconds_total"
USER_BUSY, USER_IDLE = "gpumon_user_gpu_busy_seconds_total", "gpumon_user_gpu_idle_seconds_total"

BOB = 1001
Rows: TypeAlias = dict[tuple[Any, ...], int]
USERS = {ADA: "ada", BOB: "bob"}
DEVICES = (
    Device(uuid="GPU-0", index=0),
    Device(uuid="MIG-0", index=1, parent_uuid="GPU-1", mig_index=0),
    Device(uuid="GPU-1", index=1, mig_enabled=True),
)

_READ = {spec.name: spec.read for spec in METRICS}
_OF_TIME = (OBSERVED, PENDING, GPU_BUSY, GPU_IDLE, RUN_BUSY, RUN_IDLE, USER_BUSY, USER_IDLE)


def rows_of(view: MetricView, name: str) -> dict[tuple[Any, ...], float]:
    """A family's numbers, by label values."""
    read = _READ[name]
    assert read is not None
    rows: dict[tuple[Any, ...], float] = {}
    for labels, number in read(view):
        assert isinstance(number, float | int)
        assert labels not in rows
        rows[labels] = number
    return rows


class TimeLaws:
    """Selects the metrics of each tick, and checks that the time in them adds up.

    In every tick, all runs gain what the exported counters of the GPUs grow by, to the
    nanosecond; so do all users.

    Attributes:
        view: Of the newest tick.
        exported: Nanoseconds of each family in that, and of GPUs whose series are gone.
        budget: What selects.
    """

    def __init__(self, *, slots: int = 64, names_users: bool = False) -> None:
        self._slots, self._names_users = slots, names_users
        self.budget = LabelBudget()
        self.budget._places, self.budget._users = FairSlots(slots), UserSlots(slots)
        self.view = NOTHING_SELECTED
        self._scraped_at_ns: int | None = None
        self._settled_ns: dict[str, Counter[IdleCause | None]] = {}
        self.exported: dict[str, Rows] = {name: {} for name in _OF_TIME}

    def follow(self, state: MonitorState, *, is_scraped: bool = True) -> None:
        self.view = self.budget.select(state, self.view, self._scraped_at_ns)
        if is_scraped:
            self._scraped_at_ns = state.taken_at_ns
        self._check_settled(state)
        self._check_exported({gpu.device.uuid for gpu in state.gpus})

    def _check_settled(self, state: MonitorState) -> None:
        gained = {one.uuid: Counter[IdleCause | None]() for one in state.settled}
        assert len(gained) == len(state.settled)
        for one in state.settled:
            of_users = Counter[IdleCause | None]()
            for (_, cause), amount_ns in one.by_run.items():
                assert amount_ns > 0
                gained[one.uuid][cause] += amount_ns
            for (_, cause), amount_ns in one.by_user.items():
                assert amount_ns > 0
                of_users[cause] += amount_ns
            assert of_users == (gained[one.uuid] if self._names_users else {})
        before, self._settled_ns = self._settled_ns, {}
        for gpu in state.gpus:
            grown = Counter[IdleCause | None](gpu.totals.idle_ns)
            grown[None] = gpu.totals.busy_ns - gpu.deferred_busy_ns
            self._settled_ns[gpu.device.uuid] = grown
            known = before.get(gpu.device.uuid, Counter[IdleCause | None]())
            assert gained.get(gpu.device.uuid, Counter()) == grown - known
            assert not known - grown

    def _check_exported(self, uuids: set[str]) -> None:
        before = self.exported
        self.exported = {name: _in_ns(rows_of(self.view, name)) for name in before}
        grown: dict[str, Counter[Any]] = {}
        for name, rows in self.exported.items():
            known = before[name]
            if name != PENDING:
                assert all(amount_ns >= known.get(labels, 0) for labels, amount_ns in rows.items())
            grown[name] = Counter()
            for labels, amount_ns in rows.items():
                grown[name][labels[1:]] += amount_ns - known.get(labels, 0)
            if name in (OBSERVED, GPU_BUSY, GPU_IDLE):
                # A GPU whose series are gone has not lost its time, until it is forgotten.
                kept = {labels: ns for labels, ns in known.items() if labels[0] in uuids}
                self.exported[name] = kept | rows
        for (uuid,), pending_ns in self.exported[PENDING].items():
            idle_ns = [ns for (of, _), ns in self.exported[GPU_IDLE].items() if of == uuid]
            busy_ns, observed_ns = self.exported[GPU_BUSY][uuid,], self.exported[OBSERVED][uuid,]
            assert busy_ns + sum(idle_ns) + pending_ns == observed_ns
        assert +grown[RUN_BUSY] == +grown[GPU_BUSY]
        assert +grown[RUN_IDLE] == +grown[GPU_IDLE]
        if self._names_users:
            assert +grown[USER_BUSY] == +grown[GPU_BUSY]
            assert +grown[USER_IDLE] == +grown[GPU_IDLE]
        else:
            assert not self.exported[USER_BUSY] | self.exported[USER_IDLE]
        for name in (RUN_BUSY, USER_BUSY):
            owners = {owner for (owner,) in self.exported[name]}
            assert len(owners - {UNOWNED, OTHERS}) <= self._slots
            assert owners >= {owner for (owner,) in before[name]} & {UNOWNED, OTHERS}


def _in_ns(rows: dict[tuple[Any, ...], float]) -> Rows:
    return {labels: round(number * 1e9) for labels, number in rows.items()}


def samples_of(start_ns: int, end_ns: int, level: float) -> tuple[BusySample, ...]:
    """Three samples of odd lengths."""
    bounds = [start_ns, start_ns + 166_666_667, start_ns + 499_999_999, end_ns]
    return tuple(BusySample(begin, end, level) for begin, end in pairwise(bounds))


class Machine(Story):
    """A GPU and a partitioned one, and what ``/metrics`` shows of them each second.

    ``TimeLaws`` hold after each second.
    """

    def __init__(
        self, *, drained_every: int = 1, slots: int = 64, names_users: bool = False
    ) -> None:
        user_name = (lambda uid: USERS.get(uid, str(uid))) if names_users else None
        super().__init__(drained_every=drained_every, user_name=user_name)
        self.laws = TimeLaws(slots=slots, names_users=names_users)
        self.devices = [*DEVICES]
        self.listed = {0, 1, 2}
        self.processes = {0: None, 1: None, 2: None}
        self.xid_errors = {0: (), 1: (), 2: ()}

    def live(
        self,
        *levels: float | None,
        phases: Mapping[str, Phases] | None = None,
        is_scraped: bool = True,
        held_from_s: float | None = None,
    ) -> None:
        """One second; from ``held_from_s`` before its end on, a stack sample may yet come."""
        events = {key: self._entered(entered) for key, entered in (phases or {}).items()}
        start_ns, self.second = self.now_ns, self.second + 1
        samples = []
        for index in sorted(self.listed):
            level, device = levels[index], self.devices[index]
            is_sampled = level is not None and not device.mig_enabled
            busy = samples_of(start_ns, self.now_ns, level or 0.0) if is_sampled else ()
            samples.append(self._gpu(index, busy)._replace(device=device))
        self.stacks = NO_STACKS
        if held_from_s is not None:
            held_ns = self.now_ns - s(held_from_s)
            self.stacks = StacksReading((), {device.uuid: held_ns for device in self.devices})
        state = self._tick([Frame(self.now_ns, tuple(samples))], events)
        self.laws.follow(state, is_scraped=is_scraped)

    def seconds_of(
        self, owner: str, busy: str = RUN_BUSY, idle: str = RUN_IDLE
    ) -> tuple[float, dict[str, float]]:
        """Busy time of a run or user, and its idle time by cause, as exported now."""
        idle_s = {
            cause: amount_ns / 1e9
            for (label, cause), amount_ns in self.laws.exported[idle].items()
            if label == owner
        }
        return self.laws.exported[busy][owner,] / 1e9, idle_s

    def seconds_of_user(self, user: str) -> tuple[float, dict[str, float]]:
        """As of a run."""
        return self.seconds_of(user, USER_BUSY, USER_IDLE)

    def read_lists_late(self, by_s: int) -> None:
        """Every process list from now on is of a while before now; 0: of the tick."""
        self.processes_at_ns = self.now_ns - s(by_s) if by_s else None

    def partition(self) -> None:
        """The second GPU gets a new instance in place of the one before."""
        self.devices[1] = replace(self.devices[1], uuid=f"MIG-{self.second}")

    def skip(self, count: int) -> None:
        """So many seconds pass without a tick."""
        self.second += count

    @property
    def labels(self) -> set[str]:
        """All values of ``run``."""
        return {label for (label,) in self.laws.exported[RUN_BUSY]}
