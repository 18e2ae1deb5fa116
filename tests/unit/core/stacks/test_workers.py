"""Workers are summed up over several samples."""

from __future__ import annotations

from gpumon.core.stacks.stack import ProcessStack, StackFrame, ThreadStack
from gpumon.core.stacks.workers import WorkerSummary, WorkerTally

LIBRARY = "/usr/lib/python3.11/multiprocessing"
RESIZE = StackFrame("resize", "/job/dataset.py", 88)
WAITS = StackFrame("Queue.get", f"{LIBRARY}/queues.py", 113)
TRACKER = StackFrame("main", f"{LIBRARY}/resource_tracker.py", 200)


def worker(*calls: StackFrame, pid: int = 8) -> ProcessStack:
    return ProcessStack(pid, 7, "python train.py", (ThreadStack(pid, calls),))


def summary(*samples: list[ProcessStack]) -> WorkerSummary | None:
    tally = WorkerTally()
    for sample in samples:
        tally.add(sample)
    return tally.summary()


class TestWorkers:
    def test_at_work_are_counted_with_what_they_mostly_do(self) -> None:
        found = summary([worker(RESIZE), worker(RESIZE), worker(RESIZE), worker(WAITS)])

        assert found == WorkerSummary(4, 3, RESIZE._replace(line=None), RESIZE)

    def test_that_were_not_read_count_as_the_others(self) -> None:
        assert summary([worker(RESIZE), worker()]) == WorkerSummary(
            2, 2, RESIZE._replace(line=None), RESIZE
        )

    def test_are_no_helpers_of_multiprocessing(self) -> None:
        assert summary([worker(TRACKER)]) is None

    def test_that_all_wait_have_no_call(self) -> None:
        assert summary([worker(WAITS)]) == WorkerSummary(1, 0)
