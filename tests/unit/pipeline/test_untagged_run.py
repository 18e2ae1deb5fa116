"""Why a run without tags waits, by what the kernel shows of its process."""

from __future__ import annotations

from pathlib import Path

from gpumon.core.phase import InputWaitReason
from gpumon.core.sample import BusySample
from gpumon.pipeline.untagged_run import UntaggedRun
from tests.builders.proc import PID, FakeProc
from tests.builders.time import s

SECONDS = 12


def reasons_of(proc: FakeProc, *, is_idle_when_read: bool) -> list[InputWaitReason]:
    """A process that sleeps whenever it is read, and whose GPU is idle half of the time.

    Each second it computes in the half in which the GPU is idle.
    """
    proc.task(PID)
    run = UntaggedRun(PID, s(0), str(proc.folder))
    for second in range(SECONDS):
        ran_ns = s(0.5 * second)
        proc.task(PID, ran_ns=ran_ns, switches=second, state="S", wchan="hrtimer_nanosleep")
        # The read is at the end of a second, and its windows come later.
        first, last = (1.0, 0.0) if is_idle_when_read else (0.0, 1.0)
        windows = [
            BusySample(s(second - 1), s(second - 0.5), first),
            BusySample(s(second - 0.5), s(second), last),
        ]
        run.ingest([], s(second))
        run.ingest(windows if second else [], s(second + 0.3))
    return [one.reason for one in run.reasons()]


class TestTheTrainingThread:
    def test_that_sleeps_while_the_gpu_is_idle_is_held_up_by_latency(self, tmp_path: Path) -> None:
        proc = FakeProc(tmp_path / "proc")

        assert reasons_of(proc, is_idle_when_read=True)[0] is InputWaitReason.LATENCY_BOUND

    def test_that_sleeps_while_the_gpu_works_is_not(self, tmp_path: Path) -> None:
        proc = FakeProc(tmp_path / "proc")

        found = reasons_of(proc, is_idle_when_read=False)
        assert InputWaitReason.LATENCY_BOUND not in found
