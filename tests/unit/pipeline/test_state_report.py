"""A daemon's report: the state of the last tick, the newest steps, and its notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.report.report import Report
from gpumon.core.ring_format.events import RingCounts, RingsReading
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import CollectorState, MonitorState
from gpumon.core.waits.evidence import HostReading
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import NO_RINGS, STEP, Story, monitor, reading
from tests.builders.state import STARVED_UUID, device, healthy_gpu, monitor_state, starved_gpu
from tests.builders.state import run as run_state
from tests.builders.time import s


def reported(*, says: str | None = None, **changes: Any) -> Report:
    """The report of such a state; ``says``: the message of its source."""
    source = CollectorState("nvml", says is None, 0.0, 0, says)
    return report_of(monitor_state(collectors=(source,), **changes))


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

    def test_vanished_and_is_no_mig_instance_that_was_destroyed(self) -> None:
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

    @pytest.mark.parametrize(
        ("newest", "steps", "wall_s", "samples"),
        [
            (RingCounts(steps=130, wall_ns=s(1.5), samples=130 * 32), 130, 1.5, 130 * 32),
            (RingCounts(steps=90, wall_ns=s(0.5)), 100, 1, None),
        ],
        ids=["are the newest ones", "never fall"],
    )
    def test(
        self, counted: Story, newest: RingCounts, steps: int, wall_s: float, samples: int | None
    ) -> None:
        (run,) = report_of(counted.state, {42: newest}).runs

        assert (run.steps, run.wall_ns, run.samples) == (steps, s(wall_s), samples)

    def test_that_has_ended_are_not_those_of_another_with_its_pid(self, counted: Story) -> None:
        counted.end_ring()
        state = counted.pass_second(0.0)

        (run,) = report_of(state, {42: RingCounts(steps=5000, wall_ns=s(60))}).runs

        assert run.steps == 100


class TestTheNoteOnARunWithoutAGpu:
    """Its text is in ``tests/golden``."""

    @pytest.mark.parametrize(
        ("changes", "is_noted"),
        [
            ({}, True),
            ({"steps": 0}, False),
            ({"wall_ns": s(9)}, False),
            ({"wall_ns": s(9), "alive": False}, True),
            ({"alive": False, "ended_before": True}, False),
            ({"simulated": True, "steps": 0}, True),
            ({"simulated": True, "steps": 0, "named_gpus": ("99",)}, True),
            ({"named_gpus": ("0", "99"), "gpu_uuids": (STARVED_UUID,)}, True),
            ({"gpus": ()}, False),
        ],
        ids=["", "while it begins", "in its first seconds", "once it is over", "of one before",
             "on simulated GPUs", "with an unknown name", "with a known and an unknown name",
             "where no GPU is watched"],
    )  # fmt: skip
    def test_is_made(self, changes: dict[str, Any], is_noted: bool) -> None:
        of_state = {name: changes[name] for name in ("simulated", "gpus") if name in changes}
        of_run = {name: value for name, value in changes.items() if name not in of_state}
        run = run_state(**{"gpu_uuids": (), **of_run})

        notes = reported(runs=(run,), **{"simulated": False, **of_state}).notes

        assert len(notes) == is_noted

    def test_of_many_runs_is_in_a_few_notes(self) -> None:
        runs = tuple(run_state(f"r{k}", pid=k, gpu_uuids=()) for k in range(256))

        notes = reported(runs=runs, simulated=False).notes

        assert len(notes) == 9
        assert " 248 " in notes[-1]


MISSING = "/data/busy.jsonl is not there"
REFUSED = RingsReading(rejected=1, message="1-1.ring: not a phase ring")
LEFT_OUT = RingsReading(message="2 phase rings are not read", left_out=((1000, 2),))

Second = Callable[..., MonitorState]


@pytest.fixture
def second() -> Second:
    """The next second of a daemon that follows a file."""
    watching, seconds = monitor("follow:/data/busy.jsonl", simulated=True), iter(range(1, 100))

    def pass_second(
        *frames: Frame, rings: RingsReading = NO_RINGS, error: str | None = None
    ) -> MonitorState:
        return watching.ingest(reading(s(next(seconds)), *frames, rings=rings, error=error))

    return pass_second


def frame(*, trouble: str | None = None, rejected: int = 0) -> Frame:
    gpus = (GpuSample(device=Device(uuid="GPU-followed-0", index=0)),)
    return Frame(taken_at_ns=0, gpus=gpus, trouble=trouble, rejected=rejected)


class TestAFollowedFile:
    def test_that_is_missing_makes_its_collector_fail_and_is_noted_until_it_is_there(
        self, second: Second
    ) -> None:
        without, silent, there = second(frame(trouble=MISSING)), second(), second(frame())

        source = without.collectors[0]
        assert (source.success, source.message, source.errors_total) == (False, MISSING, 0)
        assert report_of(without).notes == (f"follow: {MISSING}",)
        assert not silent.collectors[0].success
        assert there.collectors[0].success
        assert report_of(there).notes == ()

    def test_with_a_bad_line_is_noted_for_good(self, second: Second) -> None:
        second(frame(trouble="line 7: no", rejected=1))
        second(frame(trouble="line 9: no", rejected=2))
        later = second(frame())

        assert later.collectors[0].success
        assert later.collectors[0].errors_total == 3
        assert "line 9: no (3 " in report_of(later).notes[0]


class TestARefusedRing:
    def test_is_noted_for_good_and_is_no_failure(self, second: Second) -> None:
        for state in (second(frame(), rings=REFUSED), second(frame(), rings=REFUSED)):
            assert report_of(state).notes == (f"phase_rings: {REFUSED.message}",)
            assert state.collectors[1].success  # no alert


def test_hidden_processes_are_reported_for_good_and_are_no_failure() -> None:
    watching, hidden = monitor(), HostReading(message="/proc hides processes")
    watching.ingest(reading(s(1))._replace(host=hidden))

    host = watching.ingest(reading(s(2))).collectors[2]
    assert (host.success, host.message) == (True, hidden.message)


class TestRingsLeftOut:
    def test_are_noted_while_they_are(self, second: Second) -> None:
        state, later = second(frame(), rings=LEFT_OUT), second(frame())

        assert report_of(state).notes == (f"phase_rings: {LEFT_OUT.message}",)
        assert state.rings_left_out == ((1000, 2),)
        assert state.collectors[1].success
        assert (report_of(later).notes, later.rings_left_out) == ((), ())

    def test_within_the_share_of_an_owner_are_a_failure(self, second: Second) -> None:
        rings = replace(LEFT_OUT, is_whole=False)

        assert not second(frame(), rings=rings).collectors[1].success
