"""Time of GPUs by run: in every tick, all runs gain what the counters of the GPUs grow by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.owner_quotas import FairSlots
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import BusySample, Device, Frame, ProcessSample
from gpumon.core.stacks.reading import NO_STACKS, StacksReading
from gpumon.core.state import NO_RUN, MonitorState
from gpumon.outlets.metrics.gpu_time import OTHERS
from gpumon.outlets.metrics.metric_table import METRICS
from gpumon.outlets.metrics.metric_values import NOTHING_SELECTED, LabelBudget, MetricView
from tests.builders.monitor import ADA, SAVE, STEP, WAIT, Phases, Story
from tests.builders.time import s

BOB = 1001
GPU_BUSY, GPU_IDLE = "gpumon_gpu_busy_seconds_total", "gpumon_gpu_idle_seconds_total"
RUN_BUSY = "gpumon_training_gpu_busy_seconds_total"
RUN_IDLE = "gpumon_training_gpu_idle_seconds_total"
READ = {spec.name: spec.read for spec in METRICS}
DEVICES = (
    Device(uuid="GPU-0", index=0),
    Device(uuid="MIG-0", index=1, parent_uuid="GPU-1", mig_index=0),
    Device(uuid="GPU-1", index=1, mig_enabled=True),
)

Rows: TypeAlias = dict[tuple[Any, ...], int]


def exported_ns(view: MetricView, name: str) -> Rows:
    """A family's values in nanoseconds, by label values."""
    read = READ[name]
    assert read is not None
    rows: Rows = {}
    for labels, number in read(view):
        assert isinstance(number, float)
        assert labels not in rows
        rows[labels] = round(number * 1e9)
    return rows


def samples_of(start_ns: int, end_ns: int, level: float) -> tuple[BusySample, ...]:
    """Three samples of odd lengths."""
    bounds = [start_ns, start_ns + 166_666_667, start_ns + 499_999_999, end_ns]
    return tuple(BusySample(begin, end, level) for begin, end in pairwise(bounds))


class Machine(Story):
    """A GPU and a partitioned one, and what ``/metrics`` shows of them each second.

    After each second, what runs gained is what the GPUs' counters grew by, to the nanosecond.
    """

    def __init__(self, *, drained_every: int = 1, slots: int = 64) -> None:
        super().__init__(drained_every=drained_every)
        self.devices = [*DEVICES]
        self.listed = {0, 1, 2}
        self.processes = {0: None, 1: None, 2: None}
        self.xid_errors = {0: (), 1: (), 2: ()}
        self.slots = slots
        self.budget = LabelBudget()
        self.budget._places = FairSlots(slots)
        self.view = NOTHING_SELECTED
        self.scraped_at_ns: int | None = None
        self.settled_ns: dict[str, Counter[IdleCause | None]] = {}
        self.exported: dict[str, Rows] = {GPU_BUSY: {}, GPU_IDLE: {}, RUN_BUSY: {}, RUN_IDLE: {}}

    def live(
        self,
        *levels: float | None,
        phases: Mapping[str, Phases] | None = None,
        is_scraped: bool = True,
        held_from_s: float | None = None,
    ) -> MetricView:
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
        self.view = self.budget.select(state, self.view, self.scraped_at_ns)
        if is_scraped:
            self.scraped_at_ns = state.taken_at_ns
        self._check_settled(state)
        self._check_exported()
        return self.view

    def seconds_of(self, run: str) -> tuple[float, dict[str, float]]:
        """Busy time of a run, and its idle time by cause, as exported now."""
        idle = {
            cause: amount_ns / 1e9
            for (label, cause), amount_ns in self.exported[RUN_IDLE].items()
            if label == run
        }
        return self.exported[RUN_BUSY][run,] / 1e9, idle

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
        return {label for (label,) in self.exported[RUN_BUSY]}

    def _check_settled(self, state: MonitorState) -> None:
        gained = {one.uuid: Counter[IdleCause | None]() for one in state.settled}
        assert len(gained) == len(state.settled)
        for one in state.settled:
            for (_, cause), amount_ns in one.by_run.items():
                assert amount_ns > 0
                gained[one.uuid][cause] += amount_ns
        before, self.settled_ns = self.settled_ns, {}
        for gpu in state.gpus:
            grown = Counter[IdleCause | None](gpu.totals.idle_ns)
            grown[None] = gpu.totals.busy_ns - gpu.deferred_busy_ns
            self.settled_ns[gpu.device.uuid] = grown
            known = before.get(gpu.device.uuid, Counter[IdleCause | None]())
            assert gained.get(gpu.device.uuid, Counter()) == grown - known
            assert not known - grown

    def _check_exported(self) -> None:
        before = self.exported
        self.exported = {name: exported_ns(self.view, name) for name in before}
        grown: dict[str, Counter[Any]] = {}
        for name, rows in self.exported.items():
            known = before[name]
            assert all(amount_ns >= known.get(labels, 0) for labels, amount_ns in rows.items())
            grown[name] = Counter()
            for labels, amount_ns in rows.items():
                grown[name][labels[1:]] += amount_ns - known.get(labels, 0)
            if name in (GPU_BUSY, GPU_IDLE):  # one whose series are gone has not lost its time
                self.exported[name] = known | rows
        assert +grown[RUN_BUSY] == +grown[GPU_BUSY]
        assert +grown[RUN_IDLE] == +grown[GPU_IDLE]
        assert len(self.labels - {NO_RUN, OTHERS}) <= self.slots


class TestTheTimeOfAGpu:
    def test_is_that_of_the_run_that_works_on_it(self) -> None:
        machine = Machine()
        machine.ring()
        for _ in range(10):
            machine.live(0.5, None, None, phases={"train": [(0.0, STEP), (0.5, WAIT)]})
        machine.live(0.0, None, None, phases={"train": [(0.0, WAIT)]})

        busy_s, idle_s = machine.seconds_of("train")
        assert busy_s == 5
        assert sum(idle_s.values()) == 6
        assert machine.seconds_of(NO_RUN) == (0, {})

    def test_without_a_run_belongs_to_no_run(self) -> None:
        machine = Machine()
        for level in (1.0, 0.25, 0.0, 1.0):
            machine.live(level, 0.5, None)

        assert machine.labels == {NO_RUN}
        assert machine.seconds_of(NO_RUN) == (2.25 + 2, {"unknown": 1.75 + 2})


PROCESSES = st.sampled_from(
    [
        None,
        (),
        (ProcessSample(42, None, 0.75, uid=ADA),),
        (ProcessSample(43, None, None, uid=BOB),),
        (ProcessSample(42, None, 0.7, uid=ADA), ProcessSample(43, None, 0.0, uid=BOB)),
        (ProcessSample(42, None, 0.31, uid=ADA), ProcessSample(44, None, 0.17, uid=ADA)),
        (ProcessSample(99, None),),
        (ProcessSample(99, None, is_hidden=True),),
    ]
)
KEYS = {"a": (42, ADA, "train"), "b": (43, BOB, "train"), "c": (44, ADA, "eval"),
        "d": (45, ADA, "train"), "e": (46, BOB, OTHERS)}  # fmt: skip
LEVELS = st.sampled_from([None, 0.0, 0.0, 0.03, 0.2, 1 / 3, 0.5, 1.0, 1.0])
PHASES = st.sampled_from(
    [(), [(0.0, STEP)], [(0.0, WAIT)], [(0.0, STEP), (0.6, WAIT)], [(0.2, SAVE), (0.7, STEP)],
     [(0.0, TrainingPhase.OTHER)], [(0.0, TrainingPhase.COMPILE)]]
)  # fmt: skip
OF_A_RUN = ("ends", "is forgotten", "stops", "resumes", "steps")
EVENTS = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(["begins", "begins", *OF_A_RUN]), st.sampled_from([*KEYS])),
    st.tuples(st.just("lists"), st.integers(0, 2), PROCESSES),
    st.tuples(st.just("lists late"), st.sampled_from([0, 1, 3])),
    st.tuples(
        st.sampled_from(["fails", "answers", "is unplugged", "is plugged in"]), st.integers(0, 2)
    ),
    st.just(("has another instance",)),
    st.tuples(st.just("misses"), st.sampled_from([1, 3600])),
)
GPUS_NAMED = st.sampled_from([("0",), ("1:0",), ("0", "1:0"), ("0",)])
SECONDS = st.tuples(
    EVENTS,
    st.tuples(LEVELS, LEVELS, st.none()),
    st.dictionaries(st.sampled_from([*KEYS]), PHASES),
    st.booleans(),
    st.sampled_from([None, None, None, 0.0, 0.7, 2.5]),
    GPUS_NAMED,
)


def happens(machine: Machine, event: tuple[Any, ...], gpus: Sequence[str]) -> None:
    kind, *what = event
    changes: dict[str, Callable[..., object]] = {
        "begins": lambda key: machine.ring(
            key, run=KEYS[key][2], gpus=gpus, pid=KEYS[key][0], uid=KEYS[key][1], job=key
        ),
        "ends": machine.end_ring,
        "is forgotten": machine.rings.pop,
        "stops": machine.stop,
        "resumes": lambda key: machine.process_states.pop(key, None),
        "steps": lambda key: machine.alter_ring(key, steps=machine.rings[key].steps + 1),
        "lists": machine.processes.__setitem__,
        "lists late": machine.read_lists_late,
        "fails": lambda index: machine.errors.update({index: "it is lost"}),
        "answers": lambda index: machine.errors.pop(index, None),
        "is unplugged": machine.listed.discard,
        "is plugged in": machine.listed.add,
        "has another instance": machine.partition,
        "misses": machine.skip,
    }
    if kind in OF_A_RUN and what[0] not in machine.rings:
        return
    changes[kind](*what)


@settings(max_examples=300)
@given(
    st.lists(SECONDS, min_size=5, max_size=60),
    st.sampled_from([1, 1, 3]),
    st.sampled_from([1, 2, 64]),
)
def test_whatever_happens_runs_gain_what_the_gpus_counters_grow_by(
    story: list[Any], drained_every: int, slots: int
) -> None:
    machine = Machine(drained_every=drained_every, slots=slots)
    for event, levels, phases, is_scraped, held_from_s, gpus in story:
        if event is not None:
            happens(machine, event, gpus)
        known = {key: entered for key, entered in phases.items() if key in machine.rings}
        machine.live(*levels, phases=known, is_scraped=is_scraped, held_from_s=held_from_s)
