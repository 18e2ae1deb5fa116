"""Each lost second has the reason of the run that lost it."""

from __future__ import annotations

import pytest

from gpumon.core.host.evidence import HostEvidence
from gpumon.core.phase import IdleCause
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.report import MB, gil_threads, look, task
from tests.builders.time import s

CROWDED = look(workers=(task(1.0, 0.5),) * 4)
COLD = look(workers=(task(0.2),), read_bytes_per_second=50 * MB, disk_busy_ratio=0.9)
LOCKED = look(threads=gil_threads(3), waiting=0.0)


def by_reason(story: Story) -> dict[str, int]:
    return dict(gpu(story.state).totals.input_wait_by_reason_ns)


class TestAWait:
    def test_has_the_reason_of_the_evidence_at_that_time(self, training: Story) -> None:
        training.pass_second(0.0, phases=[(0.0, WAIT)])
        for evidence in (CROWDED, COLD):
            training.looks["train"] = evidence
            training.pass_second(0.0)

        assert by_reason(training) == {"unknown": s(1), "cpu_bound": s(1), "disk_bound": s(1)}

    def test_is_as_long_as_the_gpu_was_idle(self, training: Story) -> None:
        training.looks["train"] = CROWDED
        training.pass_second(0.75, phases=[(0.0, WAIT)])

        assert by_reason(training) == {"cpu_bound": s(0.25)}

    def test_before_the_first_work_has_one_too(self, story: Story) -> None:
        story.ring()
        story.looks["train"] = COLD
        story.pass_seconds(3, 0.0, phases=[(0.0, WAIT)])
        story.pass_second(1.0, phases=[(0.0, STEP)])

        assert by_reason(story) == {"disk_bound": s(3)}

    def test_of_two_runs_is_each_ones_own(self, training: Story) -> None:
        training.ring("second", pid=43)
        training.pass_second_with({"second": [(0.0, STEP)]}, 1.0)
        training.looks |= {"train": CROWDED, "second": COLD}
        training.pass_second_with({"train": [(0.0, WAIT)], "second": [(0.0, WAIT)]}, 0.0)

        assert by_reason(training) == {"cpu_bound": s(0.5), "disk_bound": s(0.5)}
        first, second = training.state.runs
        assert [one.waited_ns for one in first.reasons] == [s(0.5)]
        assert [one.waited_ns for one in second.reasons] == [s(0.5)]

    def test_is_in_the_run_with_its_figures(self, training: Story) -> None:
        training.looks["train"] = CROWDED
        training.pass_seconds(4, 0.5, phases=[(0.0, WAIT)])

        (reported,) = training.state.runs[0].reasons

        assert (reported.cause, reported.reason.value) == (IdleCause.INPUT_WAIT, "cpu_bound")
        assert (reported.waited_ns, reported.confidence) == (s(2), 1.0)
        assert reported.figures is not None
        assert reported.figures.wanted_cores == pytest.approx(4.0)


class TestAStep:
    @pytest.mark.parametrize(("evidence", "reason"), [(LOCKED, "gil_bound"), (CROWDED, "unknown")])
    def test_is_held_up_only_by_the_gil(
        self, training: Story, evidence: HostEvidence, reason: str
    ) -> None:
        training.looks["train"] = evidence
        training.pass_second(0.4, phases=[(0.0, STEP)])

        assert gpu(training.state).totals.within_step_by_reason_ns == {reason: s(0.6)}
