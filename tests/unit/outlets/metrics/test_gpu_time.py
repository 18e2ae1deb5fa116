"""Time of GPUs by run and by user: in every tick, each gains what the GPUs' counters grow by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ProcessSample
from gpumon.core.state import UNOWNED
from gpumon.outlets.metrics.gpu_time import OTHERS
from gpumon.outlets.metrics.metric_table import METRICS
from tests.builders.gpu_time import (
    BOB,
    GPU_BUSY,
    USER_BUSY,
    Machine,
    rows_of,
)
from tests.builders.monitor import ADA, SAVE, STEP, WAIT, Phases
from tests.builders.time import s

KEYS = {"a": (42, ADA, "train"), "b": (43, BOB, "train"), "c": (44, ADA, "eval"),
        "d": (45, ADA, "train"), "e": (46, BOB, OTHERS)}  # fmt: skip
"""Pid, user and name of some runs."""
OF_A_RUN = ("ends", "is forgotten", "stops", "resumes", "steps")


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


ADAS, BOBS = ProcessSample(42, None, uid=ADA), ProcessSample(43, None, uid=BOB)


@pytest.fixture
def machine() -> Machine:
    """A machine whose users are named, after a second without work."""
    started = Machine(names_users=True)
    started.live(0.0, 0.0, None)
    return started


def begin(machine: Machine, *keys: str, gpus: Sequence[str] = ("0",)) -> None:
    for key in keys:
        happens(machine, ("begins", key), gpus)


def steps_of(keys: str) -> dict[str, Phases]:
    """Each of these runs begins a step."""
    return {key: [(0.0, STEP)] for key in keys}


class TestTheTimeOfAGpu:
    def test_is_that_of_the_run_that_works_on_it(self, machine: Machine) -> None:
        begin(machine, "a")
        for _ in range(10):
            machine.live(0.5, 0.0, None, phases={"a": [(0.0, STEP), (0.5, WAIT)]})
        machine.live(0.0, 0.0, None, phases={"a": [(0.0, WAIT)]})

        busy_s, idle_s = machine.seconds_of("train")
        assert busy_s == 5
        assert sum(idle_s.values()) == 6
        assert machine.seconds_of(UNOWNED) == (0, {"not_in_use": 1 + 12})

    def test_without_a_run_belongs_to_no_run(self) -> None:
        machine = Machine()
        for level in (1.0, 0.25, 0.0, 1.0):
            machine.live(level, 0.5, None)

        assert machine.labels == {UNOWNED}
        assert machine.seconds_of(UNOWNED) == (2.25 + 2, {"unknown": 1.75 + 2})

    def test_before_its_first_work_is_the_runs_once_it_works(self, machine: Machine) -> None:
        begin(machine, "a")
        for level in (0.0, 0.0, 1.0):
            machine.live(level, 0.0, None, phases={"a": [(0.0, TrainingPhase.COMPILE)]})
        machine.live(1.0, 0.0, None)

        assert machine.seconds_of("train") == (2, {"compile": 2})

    def test_that_a_run_waited_without_working_belongs_to_no_run(self, machine: Machine) -> None:
        begin(machine, "a")
        for _ in range(3):
            machine.live(0.0, 0.0, None, phases={"a": [(0.0, TrainingPhase.COMPILE)]})
        machine.end_ring("a")
        for _ in range(2):
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of("train") == (0, {})
        assert machine.seconds_of(UNOWNED)[1]["not_in_use"] == (1 + 5) + 6

    def test_that_ends_with_a_job_belongs_to_no_run(self, machine: Machine) -> None:
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        machine.live(0.0, 0.0, None, phases={"a": [(0.0, TrainingPhase.OTHER)]})
        machine.end_ring("a")
        for _ in range(2):
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of("train") == (1, {})
        assert machine.seconds_of(UNOWNED)[1]["not_in_use"] == (1 + 3) + 5

    def test_that_ends_with_a_job_in_the_midst_of_a_sample_belongs_to_no_run(
        self, machine: Machine
    ) -> None:
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        machine.live(0.0, 0.0, None, phases={"a": [(0.0, TrainingPhase.OTHER)]})
        machine.end_ring("a", after_s=0.1)
        for _ in range(2):
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of("train") == (1, {})

    def test_in_which_a_run_cannot_run_is_the_runs(self, machine: Machine) -> None:
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        machine.stop("a")
        for _ in range(3):
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of("train") == (1, {"not_in_use": 3})

    def test_in_which_a_run_hangs_is_the_runs(self, machine: Machine) -> None:
        begin(machine, "a")
        for _ in range(5):
            machine.alter_ring("a", steps=machine.rings["a"].steps + 1)
            machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        for second in range(400):
            machine.live(0.0, 0.0, None, phases={} if second else {"a": [(0.0, WAIT)]})

        assert machine.state.gpus[0].totals.hanging_ns > 0
        assert machine.seconds_of("train") == (5, {"input_wait": 400})

    def test_of_samples_whose_run_is_not_decided_comes_with_the_decision(
        self, machine: Machine
    ) -> None:
        machine.processes_at_ns = machine.now_ns + s(0.1)
        machine.processes[0] = ()
        begin(machine, "a")
        machine.live(0.5, 0.0, None, phases={"a": [(0.0, WAIT)]})
        waiting = machine.laws.exported[GPU_BUSY]["GPU-0",]
        machine.processes_at_ns = machine.now_ns + s(1)
        machine.processes[0] = (ADAS,)
        machine.live(0.5, 0.0, None)
        machine.live(0.5, 0.0, None)

        assert waiting == 0
        assert machine.seconds_of("train") == (1.5, {"input_wait": 1.5})

    def test_that_a_run_claims_while_others_work_is_not_its_own(self, machine: Machine) -> None:
        machine.processes[0] = (BOBS,)
        begin(machine, "a")
        for _ in range(3):
            machine.live(0.5, 0.0, None, phases={"a": [(0.0, WAIT)]})

        assert machine.seconds_of("train") == (0, {})
        assert ("ada",) not in machine.laws.exported[USER_BUSY]
        assert machine.seconds_of_user("bob")[0] == 1.5

    def test_of_a_partitioned_one_is_that_of_its_instances(self, machine: Machine) -> None:
        begin(machine, "a", gpus=("1",))
        for _ in range(2):
            machine.live(0.0, 0.5, 1.0, phases={"a": [(0.0, STEP)]})

        assert machine.seconds_of("train") == (1, {"within_step": 1})
        assert ("GPU-1",) not in machine.laws.exported[GPU_BUSY]


class TestTwoRunsOnAGpu:
    def time_of_each(self, machine: Machine, *processes: ProcessSample) -> list[float]:
        """Busy and idle seconds of the first, and of the second."""
        machine.processes[0] = processes
        begin(machine, "a", "c")
        for _ in range(4):
            machine.live(0.6, 0.0, None, phases=steps_of("ac"))
        each = [machine.seconds_of(name) for name in ("train", "eval")]
        return [amount for busy, idle in each for amount in (busy, idle["within_step"])]

    def test_have_busy_time_by_their_shares_and_half_of_the_idle_time_each(
        self, machine: Machine
    ) -> None:
        first, second = ADAS._replace(sm_ratio=0.75), ADAS._replace(pid=44, sm_ratio=0.25)

        assert self.time_of_each(machine, first, second) == pytest.approx([1.8, 0.8, 0.6, 0.8])

    @pytest.mark.parametrize("ratio", [None, 0.0])
    def test_have_half_each_where_the_driver_does_not_report_both(
        self, machine: Machine, ratio: float | None
    ) -> None:
        first, second = ADAS._replace(sm_ratio=ratio), ADAS._replace(pid=44, sm_ratio=ratio)

        assert self.time_of_each(machine, first, second) == pytest.approx([1.2, 0.8, 1.2, 0.8])

    def test_give_all_to_the_one_that_can_run(self, machine: Machine) -> None:
        before = self.time_of_each(machine, ADAS)
        machine.stop("a")
        for _ in range(4):
            machine.live(0.6, 0.0, None, phases={"c": [(0.0, STEP)]})

        gained = [machine.seconds_of("train")[0], machine.seconds_of("eval")[0]]
        assert gained == pytest.approx([before[0], before[2] + 4 * 0.6])

    def test_of_two_users_give_half_to_each_user(self, machine: Machine) -> None:
        machine.processes[0] = (ADAS, BOBS)
        begin(machine, "b", "c")
        for _ in range(4):
            machine.live(0.5, 0.0, None, phases=steps_of("bc"))

        half = (1, {"within_step": 1})
        assert [machine.seconds_of_user(name) for name in ("ada", "bob")] == [half, half]


class TestALabel:
    def test_that_is_used_again_goes_on_counting(self, machine: Machine) -> None:
        for key in ("a", "d"):
            begin(machine, key)
            machine.live(1.0, 0.0, None, phases={key: [(0.0, STEP)]})
            machine.end_ring(key)
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of("train")[0] == 2

    def test_that_has_passed_on_still_gets_the_time_of_the_run_before(
        self, machine: Machine
    ) -> None:
        machine.processes_at_ns = machine.now_ns + s(0.1)
        machine.processes[0] = ()
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        machine.end_ring("a")
        begin(machine, "d")
        machine.live(1.0, 0.0, None, phases={"d": [(0.0, STEP)]})
        machine.processes_at_ns = machine.now_ns + s(1)
        machine.processes[0] = (ADAS,)
        machine.live(1.0, 0.0, None)

        assert machine.state.runs[-1].run == "train"
        assert machine.seconds_of("train") == (3, {})
        assert machine.seconds_of(UNOWNED)[0] == 0

    def test_takes_its_total_with_it(self, machine: Machine) -> None:
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        del machine.rings["a"]
        machine.live(0.0, 0.0, None)
        gone = machine.labels
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})

        assert gone == {UNOWNED}
        assert machine.seconds_of("train") == (1, {})

    def test_beyond_the_limit_is_counted_as_other(self) -> None:
        machine = Machine(slots=1)
        machine.live(0.0, 0.0, None)
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        begin(machine, "c", gpus=("1:0",))
        machine.live(1.0, 1.0, None, phases={"c": [(0.0, STEP)]})

        assert machine.labels == {UNOWNED, "train", OTHERS}
        assert machine.seconds_of(OTHERS) == (1, {})


class TestAUser:
    def test_has_the_time_of_untagged_processes(self, machine: Machine) -> None:
        machine.processes[0] = (ADAS, ADAS._replace(pid=50), ProcessSample(51, None))
        for _ in range(2):
            machine.live(0.5, 0.0, None)

        assert machine.seconds_of_user("ada") == (1, {"unknown": 1})
        assert machine.seconds_of_user(UNOWNED) == (0, {"not_in_use": 1 + 3})

    def test_who_has_left_has_the_time_until_then_but_not_the_end_of_the_job(
        self, machine: Machine
    ) -> None:
        machine.processes[0] = (ADAS,)
        machine.live(1.0, 0.0, None)
        machine.live(0.0, 0.0, None)
        machine.processes[0] = ()
        machine.live(1.0, 0.0, None)
        for _ in range(2):
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of_user("ada") == (2, {"unknown": 1})

    def test_who_has_left_has_no_time_that_ends_with_the_job(self, machine: Machine) -> None:
        machine.processes[0] = (ADAS,)
        machine.live(1.0, 0.0, None)
        machine.live(0.0, 0.0, None)
        machine.processes[0] = ()
        for _ in range(2):
            machine.live(0.0, 0.0, None)

        assert machine.seconds_of_user("ada") == (1, {})
        assert machine.seconds_of_user(UNOWNED)[1]["not_in_use"] == (1 + 3) + 5

    def test_without_a_name_has_the_number(self, machine: Machine) -> None:
        machine.processes[0] = (ADAS._replace(uid=4711),)
        machine.live(1.0, 0.0, None)

        assert machine.seconds_of_user("4711") == (1, {})

    def test_beyond_the_limit_is_counted_as_other_until_another_one_has_long_left(self) -> None:
        machine = Machine(slots=1, names_users=True)
        for process, skipped in ((ADAS, 0), (BOBS, 0), (BOBS, 1000)):
            machine.skip(skipped)
            machine.processes[0] = (process,)
            machine.live(1.0, 0.0, None)

        assert machine.seconds_of_user(OTHERS) == (1, {})
        assert machine.seconds_of_user("bob") == (1, {})
        assert ("ada",) not in machine.laws.exported[USER_BUSY]


def info(machine: Machine, name: str) -> set[tuple[str, ...]]:
    return {tuple(map(str, labels)) for labels in rows_of(machine.laws.view, name)}


class TestWhoIsOnAGpu:
    def test_is_shown_of_living_runs_with_job_and_user(self, machine: Machine) -> None:
        begin(machine, "a", "c")
        machine.alter_facts("c", job="4711.0")
        machine.alter_facts("a", job=f"train-{machine.rings['a'].facts.pid}")
        machine.live(1.0, 0.0, None, phases=steps_of("ac"))
        both = info(machine, "gpumon_gpu_job_info")
        machine.end_ring("a")
        machine.live(1.0, 0.0, None)

        assert both == {("GPU-0", "train", "", "ada"), ("GPU-0", "eval", "4711.0", "ada")}
        assert info(machine, "gpumon_gpu_job_info") == {("GPU-0", "eval", "4711.0", "ada")}

    def test_is_shown_of_users_of_processes_and_runs(self, machine: Machine) -> None:
        machine.processes[1] = (BOBS, ProcessSample(9, None), BOBS._replace(uid=4711))
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})

        assert info(machine, "gpumon_gpu_user_info") == {
            ("GPU-0", "ada"), ("MIG-0", "bob"), ("MIG-0", "4711"),
        }  # fmt: skip

    def test_names_no_user_unless_that_is_wanted(self) -> None:
        machine = Machine()
        machine.processes[0] = (ADAS,)
        begin(machine, "a")
        for _ in range(2):
            machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})

        assert info(machine, "gpumon_gpu_user_info") == set()
        assert info(machine, "gpumon_gpu_job_info") == {("GPU-0", "train", "a", "")}
        every_read = [spec.read for spec in METRICS if spec.read is not None]
        rows = [labels for read in every_read for labels, _ in read(machine.laws.view)]
        assert not {"ada", "bob", str(ADA), str(BOB)} & {str(one) for row in rows for one in row}

    @pytest.mark.parametrize("way", ["fails", "is unplugged"])
    def test_is_not_shown_of_a_gpu_that_is_gone(self, machine: Machine, way: str) -> None:
        machine.processes[0] = (ADAS,)
        begin(machine, "a")
        machine.live(1.0, 0.0, None, phases={"a": [(0.0, STEP)]})
        happens(machine, (way, 0), ())
        for _ in range(4):
            machine.live(1.0, 0.0, None)

        assert info(machine, "gpumon_gpu_job_info") == set()
        assert info(machine, "gpumon_gpu_user_info") == set()

    def test_is_one_series_for_all_users_beyond_the_limit(self) -> None:
        machine = Machine(slots=1, names_users=True)
        machine.processes[0] = (ADAS, BOBS, BOBS._replace(uid=4711))
        machine.live(1.0, 0.0, None)

        assert info(machine, "gpumon_gpu_user_info") == {("GPU-0", "4711"), ("GPU-0", OTHERS)}


def test_what_is_held_back_of_an_instance_ends_with_it(machine: Machine) -> None:
    machine.live(0.0, 1.0, None)
    machine.live(0.0, 0.0, None)
    machine.partition()
    machine.live(0.0, 0.0, None)
    held = machine.laws.budget._time_by_run._held
    was_held = ("MIG-0", IdleCause.NOT_IN_USE) in held
    machine.skip(1000)
    machine.live(0.0, 0.0, None)

    assert was_held
    assert "MIG-0" not in {uuid for uuid, _ in held}


class TestTwoRunsOfOneName:
    def test_of_two_users_have_the_user_in_the_label_of_the_second(self, machine: Machine) -> None:
        begin(machine, "a", "b")
        machine.live(1.0, 0.0, None, phases=steps_of("ab"))

        assert [run.run for run in machine.state.runs] == ["train", "train-bob"]
        assert machine.seconds_of("train-bob") == machine.seconds_of("train") == (0.5, {})

    def test_of_one_user_have_the_pid_as_before(self, machine: Machine) -> None:
        begin(machine, "a", "d")
        machine.live(1.0, 0.0, None)

        assert [run.run for run in machine.state.runs] == ["train", "train-45"]

    def test_of_two_users_have_the_pid_where_users_are_not_named(self) -> None:
        machine = Machine()
        begin(machine, "a", "b")
        machine.live(1.0, 0.0, None)

        assert [run.run for run in machine.state.runs] == ["train", "train-43"]

    def test_keep_the_user_in_the_label_of_the_next_run(self, machine: Machine) -> None:
        begin(machine, "a", "b")
        machine.live(1.0, 0.0, None)
        machine.end_ring("b")
        machine.live(1.0, 0.0, None)
        machine.ring("b2", run="train", pid=60, uid=BOB)
        machine.live(1.0, 0.0, None)

        assert [run.run for run in machine.state.runs] == ["train", "train-bob"]
        assert machine.state.runs[1].pid == 60


def test_a_run_began_at_a_time_of_the_wall_clock_that_does_not_change(machine: Machine) -> None:
    machine.second += 2
    begin(machine, "a")
    for _ in range(3):
        machine.live(1.0, 0.0, None)
        began = rows_of(machine.laws.view, "gpumon_training_run_start_timestamp_seconds")
        assert began == {("train",): 3.0}


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
LEVELS = st.sampled_from([None, 0.0, 0.03, 0.2, 1 / 3, 0.5, 1.0, 1.0, 1.0])
PHASES = st.sampled_from(
    [(), [(0.0, STEP)], [(0.0, WAIT)], [(0.0, STEP), (0.6, WAIT)], [(0.2, SAVE), (0.7, STEP)],
     [(0.0, TrainingPhase.OTHER)], [(0.0, TrainingPhase.COMPILE)]]
)  # fmt: skip
EVENTS = st.one_of(
    *[st.none()] * 4,
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


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([*KEYS]), unique=True, max_size=3),
    st.lists(SECONDS, min_size=5, max_size=60),
    st.sampled_from([1, 1, 3]),
    st.sampled_from([1, 2, 64]),
    st.booleans(),
)
def test_whatever_happens_runs_gain_what_the_gpus_counters_grow_by(
    begun: list[str], story: list[Any], drained_every: int, slots: int, names_users: bool
) -> None:
    machine = Machine(drained_every=drained_every, slots=slots, names_users=names_users)
    for key in begun:
        happens(machine, ("begins", key), ("0",))
    for event, levels, phases, is_scraped, held_from_s, gpus in story:
        if event is not None:
            happens(machine, event, gpus)
        known = {key: phases.get(key, [(0.0, STEP)]) for key in machine.rings}
        machine.live(*levels, phases=known, is_scraped=is_scraped, held_from_s=held_from_s)
