"""Tests of the values that get series, and of their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.device.board_counters import ACTIVITIES, TRANSFERS, BoardCounters
from gpumon.core.device.driver_codes import MAX_XIDS, THROTTLE_REASONS
from gpumon.core.owner_quotas import MAX_RUNS_SHOWN
from gpumon.core.phase import CAUSES, PHASES, IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.sample import ActivitySample, GpuDetails
from gpumon.core.state import GpuState, MonitorState, RunState, RunTimeKey, SettledTime
from gpumon.outlets.metrics.label_budget import LabelBudget
from gpumon.outlets.metrics.metric_table import METRICS
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.sources.nvml.drain_schedule import LONGEST_NS
from tests.builders.monitor import Story
from tests.builders.report import gpm_fill, power_fill
from tests.builders.state import (
    HEALTHY_UUID,
    S,
    StoppedClock,
    detailed_gpu,
    device,
    healthy_gpu,
    monitor_state,
    run,
    starved_gpu,
)

DETAILS = {spec.name for spec in METRICS if spec.group == "gpu_details"}
"""Families with details of a board."""
XIDS = "gpumon_gpu_xid_errors_total"
ERRORS = "gpumon_nvml_errors_total"
FUNCTIONS = [f"nvmlFunction{number}" for number in range(300)]
STEADY = [TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.CALLBACKS]
LOST = detailed_gpu(present=False, error="GPU is lost")


def scraped(state: MonitorState, *, ticks: int = 1, later_s: int = 0) -> list[str]:
    """The lines of a scrape after some ticks."""
    clock = StoppedClock()
    exporter = MetricsExporter(clock=clock, version="0")
    for _ in range(ticks):
        exporter.publish(state)
    clock.now_ns += later_s * S
    return exporter.render().body.decode().splitlines()


def of(family: str, lines: list[str]) -> dict[str, float]:
    """Values of a family, by their labels as text."""
    series = (line for line in lines if line.startswith(f"{family}{{"))
    return {
        labels.removeprefix(family): float(value)
        for labels, _, value in (line.rpartition(" ") for line in series)
    }


def values(family: str, gpu: GpuState) -> dict[str, float]:
    return of(family, scraped(monitor_state(gpus=(gpu,))))


def with_latest(**changes: Any) -> GpuState:
    gpu = detailed_gpu()
    assert gpu.latest is not None
    return gpu._replace(latest=gpu.latest._replace(**changes))


@pytest.mark.parametrize("error", [None, LOST.error])
def test_a_removed_gpu_has_no_series(error: str | None) -> None:
    gone = detailed_gpu(present=False, listed=False, error=error)

    lines = scraped(monitor_state(gpus=(gone,), runs=()))

    assert [line for line in lines if gone.device.uuid in line] == []


class TestDetails:
    def test_without_an_answer_have_no_series(self) -> None:
        silent = with_latest(details=GpuDetails(read_at_ns=1), activity=ActivitySample(1, 2))
        for gpu in (silent._replace(xid_errors=()), healthy_gpu()):
            lines = scraped(monitor_state(gpus=(gpu,)))

            assert [name for name in DETAILS if of(name, lines)] == []

    @pytest.mark.parametrize("name", sorted(DETAILS - {XIDS}))
    def test_vanish_with_the_gpu(self, name: str) -> None:
        well = monitor_state(gpus=(detailed_gpu(),))

        assert of(name, scraped(well)) != {}
        assert values(name, LOST) == {}
        assert of(name, scraped(well, later_s=3)) == {}


class TestLimits:
    @pytest.mark.parametrize(
        ("family", "state", "most", "left_out"),
        [
            (
                XIDS,
                monitor_state(
                    gpus=(detailed_gpu(xid_errors=tuple((n, 1) for n in range(MAX_XIDS + 5))),)
                ),
                MAX_XIDS,
                5,
            ),
            (ERRORS, monitor_state(call_errors=tuple((n, 1, 1) for n in FUNCTIONS)), 256, 44),
        ],
        ids=["XIDs", "errors"],
    )
    def test_hold_and_dropped_label_sets_are_counted_once_a_tick(
        self, family: str, state: MonitorState, most: int, left_out: int
    ) -> None:
        lines = scraped(state, ticks=3)

        assert len(of(family, lines)) == most
        dropped = of("gpumon_label_sets_dropped_total", lines)
        assert dropped[f'{{family="{family}"}}'] == 3 * left_out


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (healthy_gpu(fill=gpm_fill(0.9)), [0.0]),
        (healthy_gpu(fill=power_fill(180.0), under_filled_now=True), [1.0]),
        (healthy_gpu(), []),
    ],
    ids=["full", "under-filled", "unknown"],
)
def test_an_under_filled_gpu_is_1(gpu: GpuState, expected: list[float]) -> None:
    assert [*values("gpumon_gpu_under_filled", gpu).values()] == expected


class TestAMigPartitionedGpu:
    PARTITIONED = healthy_gpu(device=device(0, "GPU-a", mig_enabled=True))
    INSTANCE = healthy_gpu(
        device=device(
            0, "MIG-a", parent_uuid="GPU-a", mig_index=1, gpu_instance=2, compute_instance=0
        )
    )

    def test_has_instances_with_their_labels(self) -> None:
        (labels,) = values("gpumon_gpu_info", self.INSTANCE)
        (numbers,) = values("gpumon_gpu_mig_info", self.INSTANCE)

        assert 'gpu="0:1"' in labels
        assert numbers == (
            '{compute_instance="0",gpu_instance="2",parent_uuid="GPU-a",uuid="MIG-a"}'
        )
        assert values("gpumon_gpu_mig_info", healthy_gpu()) == {}

    def test_has_only_the_time_before_it_was_partitioned(self) -> None:
        never_used = self.PARTITIONED._replace(totals=GpuTotals())

        assert values("gpumon_gpu_observed_seconds_total", never_used) == {}
        assert values("gpumon_gpu_starved", never_used) == {}
        assert values("gpumon_gpu_info", never_used) != {}
        used = values("gpumon_gpu_observed_seconds_total", self.PARTITIONED)  # before
        assert [*used.values()] == [100.0]


LIVING = run("train", steps=2)
OLD = [run(f"old-{number}", alive=False) for number in range(MAX_RUNS_SHOWN)]


class TestRuns:
    @pytest.mark.parametrize(
        ("runs", "shown", "left_out"),
        [
            ((run("a"), run("b")), (run("a"), run("b")), 0),
            ((run("train", alive=False, steps=9), LIVING), (LIVING,), 1),
            ((run("a\n"), run("a\t")), (run("a\n"),), 1),
            ((*OLD, LIVING), (LIVING, *OLD[:-1]), 1),
        ],
        ids=["two names", "same name: the living one", "same name when shown",
             "over the limit: the living one first"],
    )  # fmt: skip
    def test_get_series(
        self, runs: tuple[RunState, ...], shown: tuple[RunState, ...], left_out: int
    ) -> None:
        selection = LabelBudget().select(monitor_state(runs=runs))

        assert selection.runs == shown
        assert dict(selection.dropped)["gpumon_training"] == left_out


class TestRunsOfSeveralOwners:
    MANY = tuple(run(f"a{number}", owner_uid=1000, pid=number) for number in range(300))
    ONE = run("b", owner_uid=1001)

    def test_get_fair_shares_of_the_series(self) -> None:
        view = LabelBudget().select(monitor_state(runs=(*self.MANY, self.ONE)))

        assert self.ONE in view.runs
        assert len(view.runs) == MAX_RUNS_SHOWN
        assert list(view.without_series()) == [((1000,), 301 - MAX_RUNS_SHOWN)]

    def test_keep_their_series_while_they_are_alive(self) -> None:
        budget = LabelBudget()
        first = budget.select(monitor_state(runs=self.MANY[:MAX_RUNS_SHOWN])).runs
        for count in (65, 300, 65):
            assert budget.select(monitor_state(runs=self.MANY[:count])).runs == first

    def test_keep_their_series_beside_short_runs_of_another_owner(self) -> None:
        budget, living = LabelBudget(), self.MANY[:MAX_RUNS_SHOWN]
        now_ns = monitor_state().taken_at_ns
        short = replace(self.ONE, written_ns=now_ns)
        shown = []
        for tick in range(10):
            other = replace(short, alive=tick % 2 == 0)
            view = budget.select(monitor_state(runs=(*living, other)))
            shown.append({one.run for one in view.runs})

        assert shown == [shown[0]] * 10
        assert "b" in shown[0]


def test_a_gpu_that_is_listed_twice_has_series_once() -> None:
    selection = LabelBudget().select(monitor_state(gpus=(starved_gpu(), starved_gpu())))

    assert (len(selection.gpus), dict(selection.dropped)["gpumon_gpu"]) == (1, 1)


def series_with(label: str, state: MonitorState) -> int:
    return sum(label in line for line in scraped(state))


OPT_IN_DETAILS = (
    "fan_speed_ratio",
    "encoder_ratio",
    "decoder_ratio",
    *(f"{name}_bytes_per_second" for name in TRANSFERS),
)


class TestHowManySeries:
    def busy_gpu(self) -> GpuState:
        """A GPU with every cause, every reason for a wait, and all fields that are on."""
        gpu = detailed_gpu(
            fill=gpm_fill(0.9),
            xid_errors=(),
            device=device(0, "MIG-a", parent_uuid="GPU-a", gpu_instance=1, compute_instance=0),
        )
        assert gpu.latest is not None
        reasons = {reason.value: S for reason in InputWaitReason}
        idle_ns = dict.fromkeys(CAUSES, S) | {IdleCause.INPUT_WAIT: len(reasons) * S}
        return gpu._replace(
            totals=gpu.totals._replace(idle_ns=idle_ns, input_wait_by_reason_ns=reasons),
            latest=gpu.latest._replace(
                processes=(),
                details=GpuDetails(**self.details_of(gpu, throttle_reasons=())),
            ),
            board=BoardCounters(activity_ns=dict.fromkeys(ACTIVITIES, S)),
        )

    @staticmethod
    def details_of(gpu: GpuState, **changes: Any) -> dict[str, Any]:
        assert gpu.latest is not None
        assert gpu.latest.details is not None
        return gpu.latest.details._asdict() | dict.fromkeys(OPT_IN_DETAILS) | changes

    def count(self, gpu: GpuState) -> int:
        return series_with('"MIG-a"', monitor_state(gpus=(gpu,), runs=()))

    def test_a_gpu_has_is_78_at_most_if_its_board_is_in_no_trouble(self) -> None:
        assert self.count(self.busy_gpu()) == 78

    def test_a_gpu_has_is_90_at_most_with_four_reasons_for_reduced_clocks_and_four_xids(
        self,
    ) -> None:
        gpu = self.busy_gpu()
        reasons = [*THROTTLE_REASONS.values()][:4]
        board = gpu.board._replace(throttled_ns=dict.fromkeys(reasons, S))
        xids = tuple((number, 1) for number in range(4))

        assert self.count(gpu._replace(board=board, xid_errors=xids)) == 78 + 2 * 4 + 4

    def test_a_gpu_has_is_11_more_with_the_fields_of_nvml_on(self) -> None:
        gpu = self.busy_gpu()
        assert gpu.latest is not None
        details = GpuDetails(**self.details_of(gpu, **dict.fromkeys(OPT_IN_DETAILS, 1.0)))
        board = gpu.board._replace(transferred_bytes=dict.fromkeys(TRANSFERS, 1))
        gpu = gpu._replace(latest=gpu.latest._replace(details=details), board=board)

        assert self.count(gpu) == 78 + 11

    def test_an_unused_gpu_has_is_half_of_that(self) -> None:
        totals = GpuTotals(observed_ns=S, idle_ns={IdleCause.NOT_IN_USE: S})
        state = monitor_state(gpus=(healthy_gpu(totals=totals),), runs=())

        assert series_with("uuid=", state) <= 45

    @pytest.mark.parametrize(
        ("phases", "phase", "most"),
        [
            ([TrainingPhase.OTHER], TrainingPhase.OTHER, 12),
            ([TrainingPhase.START_UP, TrainingPhase.INPUT_WAIT], TrainingPhase.INPUT_WAIT, 14),
            ([TrainingPhase.START_UP, *STEADY], None, 20),
            (PHASES, TrainingPhase.TRAIN_STEP, 35),
        ],
        ids=["idle", "waiting", "at rest", "at work"],
    )
    def test_a_run_has_are_few(
        self, phases: Sequence[TrainingPhase], phase: TrainingPhase | None, most: int
    ) -> None:
        one = run("train", phase=phase, phase_ns=dict.fromkeys(phases, S), ratio_changes=1)

        assert series_with('run="train"', monitor_state(runs=(one,))) <= most

    def test_a_run_has_with_its_idle_time_is_one_more_for_each_cause(self) -> None:
        one = run("train", phase=TrainingPhase.OTHER, phase_ns={TrainingPhase.OTHER: S})
        idle: dict[RunTimeKey, int] = {("train", cause): S for cause in CAUSES}
        gpu = healthy_gpu(totals=GpuTotals(idle_ns=dict.fromkeys(CAUSES, S)))
        exporter = MetricsExporter(clock=StoppedClock(), version="0")
        counts = []
        for settled in ((), (SettledTime(HEALTHY_UUID, idle, {}),)):
            exporter.publish(monitor_state(runs=(one,), gpus=(gpu,), settled=settled))
            text = exporter.render().body.decode()
            exporter.publish(monitor_state(runs=(one,), gpus=(gpu,)))
            text = exporter.render().body.decode()
            counts.append(text.count('run="train"'))

        assert counts[1] - counts[0] == len(CAUSES)

    def test_no_cause_phase_or_reason_has_a_series_before_it_occurred(self) -> None:
        nothing = healthy_gpu(totals=GpuTotals(idle_ns=dict.fromkeys(CAUSES, 0)))
        one = run(phase=TrainingPhase.OTHER, phase_ns=dict.fromkeys(PHASES, 0))
        lines = scraped(monitor_state(gpus=(nothing,), runs=(one,)))

        assert of("gpumon_gpu_idle_seconds_total", lines) == {}
        assert of("gpumon_training_phase_seconds_total", lines) == {}
        assert of("gpumon_training_phase", lines) == {'{phase="other",run="resnet"}': 1.0}


@pytest.fixture(scope="module")
def counted() -> list[tuple[int, int]]:
    """Busy and observed time after each second of a GPU that works."""
    story = Story(drained_every=LONGEST_NS // S)
    totals = [story.pass_second(1.0).gpus[0].totals for _ in range(500)]
    return [(one.busy_ns, one.observed_ns) for one in totals]


class TestARateOfATimeThatIsCountedEveryFewSeconds:
    """The driver's samples are read every 4 s."""

    @pytest.mark.parametrize("scrape_s", [5, 10, 15])
    @pytest.mark.parametrize(("window_s", "largest"), [(60, 0.08), (300, 0.02)])
    def test_errs_by_no_more_than_is_documented(
        self, counted: list[tuple[int, int]], scrape_s: int, window_s: int, largest: float
    ) -> None:
        covered_s = (window_s // scrape_s - 1) * scrape_s  # from its first scrape to its last
        errors, errors_of_share = [], []
        for first in range(100, 500 - covered_s):
            last = first + covered_s
            # Any scrape may come just before the tick of its second, or just after.
            for busy_ns, observed_ns in (
                (after[0] - before[0], after[1] - before[1])
                for before in counted[first - 1 : first + 1]
                for after in counted[last - 1 : last + 1]
            ):
                errors.append(abs(busy_ns / (covered_s * S) - 1))
                errors_of_share.append(abs(busy_ns / observed_ns - 1))

        assert 0.005 < max(errors) <= largest
        assert max(errors_of_share) == 0
