"""Specification of a daemon's report: the state of the last tick, and the newest steps."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.report.report import Report
from gpumon.core.ring_format.events import RingCounts
from gpumon.core.state import CollectorState
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import STEP, Story
from tests.builders.state import STARVED_UUID, device, healthy_gpu, monitor_state, starved_gpu
from tests.builders.state import run as run_state
from tests.builders.time import s


def reported(*, says: str | None = None, **changes: Any) -> Report:
    """The report of such a state, where the source says that of itself."""
    source = CollectorState("nvml", says is None, 0.0, 0, says)
    return report_of(monitor_state(collectors=(source,), **changes))


@pytest.mark.parametrize("alive", [True, False])
def test_a_run_says_whether_it_trains_and_how_long_its_steps_take(alive: bool) -> None:
    (run,) = reported(runs=(run_state(alive=alive, step_ns=s(0.02)),)).runs

    assert (run.alive, run.step_ns) == (alive, s(0.02))


@pytest.mark.parametrize(("output", "notes"), [("gross", 1), ("measured", 0)])
def test_gross_waits_of_a_run_are_noted(output: str, notes: int) -> None:
    run = run_state(loader={"input_wait": output})

    found = [note for note in reported(runs=(run,)).notes if f"of {run.run} are gross" in note]

    assert len(found) == notes


class TestAGpuThatIsLost:
    LOST = "the GPU is lost (NVML 15): look for Xid 79 in `dmesg`"

    def test_before_the_daemon_began_is_named_in_a_note_and_has_a_row_of_its_own(self) -> None:
        report = reported(says=f"GPU 7: {self.LOST}")

        assert report.notes == (f"GPU 7: {self.LOST}",)
        assert [(gpu.index, gpu.uuid is None, gpu.is_lost) for gpu in report.gpus] == [
            (0, False, False), (1, False, False), (7, True, True),
        ]  # fmt: skip
        assert all(advice.cause != "not_in_use" for advice in report.advice)

    def test_while_it_ran_is_named_once(self) -> None:
        lost = starved_gpu(present=False, error=self.LOST)

        report = reported(says=f"GPU 0: {self.LOST}", gpus=(lost,))

        assert report.notes == (f"GPU 0: {self.LOST}",)

    def test_is_one_that_vanished_and_no_instance_that_was_destroyed(self) -> None:
        gone = {"present": False, "listed": False}
        part = device(1, "MIG-a", parent_uuid="GPU-x", mig_index=0)

        report = reported(gpus=(starved_gpu(**gone), healthy_gpu(device=part, **gone)))

        assert [gpu.is_lost for gpu in report.gpus] == [True, False]

    @pytest.mark.parametrize(
        ("message", "why"),
        [
            ("the driver has not answered yet", "the driver has not answered yet"),
            ("GPU 1: the GPU needs a reset: do it", "no recent answer"),
        ],
    )
    def test_is_one_that_gives_no_answer(self, message: str, why: str) -> None:
        silent = starved_gpu(present=False)

        report = reported(says=message, gpus=(silent, healthy_gpu()))

        (trouble,) = report.gpus[0].troubles
        assert trouble.text.endswith(f": {why}")
        assert trouble.last_ns == silent.last_sample_at_ns
        assert not report.gpus[1].is_lost


class TestTheStepsOfARun:
    @pytest.fixture
    def counted(self, story: Story) -> Story:
        """A run with a hundred steps after a second at work."""
        story.ring(pid=42)
        story.alter_ring(steps=100)
        story.pass_second(1.0, phases=[(0.0, STEP)])
        return story

    def test_and_its_samples_are_those_counted_when_the_report_is_asked_for(
        self, counted: Story
    ) -> None:
        newest = RingCounts(steps=130, wall_ns=s(1.5), samples=130 * 32)

        (untold,) = report_of(counted.state).runs
        (run,) = report_of(counted.state, {42: newest}).runs

        assert (untold.steps, untold.samples) == (100, None)
        assert (run.steps, run.wall_ns, run.samples) == (130, s(1.5), 130 * 32)

    def test_never_fall_behind_what_the_last_tick_reported(self, counted: Story) -> None:
        (run,) = report_of(counted.state, {42: RingCounts(steps=90, wall_ns=s(0.5))}).runs

        assert (run.steps, run.wall_ns) == (100, s(1))

    def test_of_one_that_is_known_to_be_over_are_not_those_of_another_with_its_pid(
        self, counted: Story
    ) -> None:
        counted.end_ring()
        state = counted.pass_second(0.0)

        (run,) = report_of(state, {42: RingCounts(steps=5000, wall_ns=s(60))}).runs

        assert run.steps == 100


class TestARunThatIsJoinedToNoGpu:
    def note_of(self, *, simulated: bool = False, gpus: Any = None, **changes: Any) -> str:
        watched = {} if gpus is None else {"gpus": gpus}
        run = run_state(**{"gpu_uuids": (), **changes})
        notes = reported(runs=(run,), simulated=simulated, **watched).notes
        assert len(notes) <= 1
        return "".join(notes)

    @pytest.mark.parametrize(
        ("changes", "output"),
        [
            pytest.param({}, ["resnet", "4242", "GPUMON_GPUS=0", "gpus=[0]"], id="what to set"),
            pytest.param({"steps": 0}, [], id="nothing while it begins"),
            pytest.param({"wall_ns": s(9)}, [], id="nothing in its first seconds"),
            pytest.param({"wall_ns": s(9), "alive": False}, ["4242"], id="once it is over"),
            pytest.param({"alive": False, "ended_before": True}, [], id="nothing of one before"),
            pytest.param({"simulated": True, "steps": 0}, ["simulated"], id="simulated GPUs"),
            pytest.param(
                {"simulated": True, "steps": 0, "named_gpus": ("99",)},
                ["resnet", "GPU 99", "GPUs 0 and 1"], id="a name of none",
            ),
            pytest.param(
                {"named_gpus": ("0", "99"), "gpu_uuids": (STARVED_UUID,)}, ["GPU 99"],
                id="a part of its names, beside a GPU that it has",
            ),
            pytest.param({"gpus": ()}, [], id="nothing where no GPU is watched"),
        ],
    )  # fmt: skip
    def test_is_reported(self, changes: dict[str, Any], output: list[str]) -> None:
        note = self.note_of(**changes)

        assert [word for word in output if word not in note] == []
        assert bool(note) == bool(output)

    def test_of_many_runs_is_in_a_few_notes(self) -> None:
        runs = tuple(run_state(f"r{k}", pid=k, gpu_uuids=()) for k in range(256))

        notes = reported(runs=runs, simulated=False).notes

        assert len(notes) == 9
        assert " 248 " in notes[-1]

    def test_is_joined_by_what_it_says(self, story: Story) -> None:
        story.ring(pid=42, gpus=("99",))

        (note, *_) = report_of(story.pass_second(1.0, phases=[(0.0, STEP)])).notes

        assert "GPU 99" in note
