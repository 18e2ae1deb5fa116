"""Training runs whose processes are really stopped, one in each phase."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.daemon import FollowingDaemon
from tests.e2e.hurried_daemon import ROOT, started_training
from tests.patience import wait_until
from tests.programs import gpumon

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "e2e" / "stopped_training.py"
ALONE = ("input_wait", "train_step", "other")
"""By the number of its GPU: the phase in which it is stopped."""
LEADS, FOLLOWS = len(ALONE), len(ALONE) + 1
"""GPUs of a job of two, of which rank 0 is stopped."""
STOPPED = (*range(len(ALONE)), LEADS)
AT_LEAST_S, LATER_S = 1.0, 2.5
TICK_S = 0.5
"""A look at the processes; what passes until the next one may be lost to anything."""


class Course(NamedTuple):
    """Reports on the same training runs.

    Attributes:
        pids: By GPU.
        stopped: Some time after four of them were stopped.
        text: The printed report at that time.
        later: When they had been stopped for longer.
        resumed: When they had gone on.
    """

    pids: list[int]
    stopped: dict[str, Any]
    text: str
    later: dict[str, Any]
    resumed: dict[str, Any]

    def causes(self, report: dict[str, Any], gpu: int) -> dict[str, float]:
        """Idle seconds by cause, without the time not in use."""
        seconds: dict[str, float] = dict(report["gpus"][gpu]["idle_by_cause"])
        del seconds["not_in_use"]
        return seconds


def start(daemon: FollowingDaemon, stack: ExitStack) -> list[subprocess.Popen[str]]:
    """All training runs, by GPU."""
    fifo = daemon.folder / "steps"
    os.mkfifo(fifo)
    started = [
        started_training(daemon, PROGRAM, where, gpu, where) for gpu, where in enumerate(ALONE)
    ]
    for rank, (gpu, where) in enumerate([(LEADS, "leads"), (FOLLOWS, "follows")]):
        job = {"RANK": str(rank), "WORLD_SIZE": "2"}
        started.append(started_training(daemon, PROGRAM, "pair", gpu, where, str(fifo), **job))
    return [stack.enter_context(one) for one in started]


def not_in_use_s(report: dict[str, Any]) -> list[float]:
    return [report["gpus"][gpu]["idle_by_cause"]["not_in_use"] for gpu in STOPPED]


def steps(report: dict[str, Any]) -> dict[int, int]:
    return {run["pid"]: run["steps"] for run in report["runs"]}


def printed(daemon: FollowingDaemon, *words: str) -> str:
    done = gpumon("report", *words, environ=daemon.environ)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    daemon = FollowingDaemon(tmp_path_factory.mktemp("stopped"), gpus=FOLLOWS + 1)
    with daemon, ExitStack() as stack:
        runs = start(daemon, stack)
        pids = [process.pid for process in runs]
        for gpu in STOPPED:
            pipe = runs[gpu].stdout
            assert pipe is not None
            assert pipe.readline()  # it is where it is to be stopped
            runs[gpu].send_signal(signal.SIGSTOP)

        wait_until(lambda: min(not_in_use_s(daemon.report())) > AT_LEAST_S, 60)
        stopped, text = daemon.report(), printed(daemon)
        wait_until(lambda: min(not_in_use_s(daemon.report())) > LATER_S, 60)
        later = daemon.report()

        for gpu in STOPPED:
            runs[gpu].send_signal(signal.SIGCONT)
        before = steps(later)

        def go_on() -> bool:
            report = daemon.report()
            return all(steps(report)[pid] > before[pid] + 5 for pid in pids) and not any(
                gpu["now"]["suspended"] for gpu in report["gpus"]
            )

        wait_until(go_on, 60)
        yield Course(pids, stopped, text, later, daemon.report())


class TestATrainingThatIsStopped:
    def test_is_the_first_sentence_with_since_when(self, course: Course) -> None:
        assert re.match(
            r"Verdict: Suspended since \d\d:\d\d UTC: Run \S+ \(pid \d+\).* are stopped\.",
            course.text,
        )

    @pytest.mark.parametrize("gpu", STOPPED, ids=[*ALONE, "rank 0"])
    def test_is_printed_to_be_suspended_whatever_phase_it_was_in(
        self, course: Course, gpu: int
    ) -> None:
        now = course.stopped["gpus"][gpu]["now"]
        sentence = rf"\(pid {course.pids[gpu]}\) has been suspended since \d\d:\d\d UTC"

        assert (now["suspended"], now["verdict"]) == (True, "not_in_use")
        assert re.search(sentence, course.text)

    @pytest.mark.parametrize("gpu", STOPPED, ids=[*ALONE, "rank 0"])
    def test_leaves_its_gpu_not_in_use_and_nothing_else(self, course: Course, gpu: int) -> None:
        before, after = course.stopped["gpus"][gpu], course.later["gpus"][gpu]
        passed_s = after["observed_seconds"] - before["observed_seconds"]

        assert passed_s >= LATER_S - AT_LEAST_S - TICK_S
        assert after["idle_by_cause"]["not_in_use"] == pytest.approx(
            before["idle_by_cause"]["not_in_use"] + passed_s
        )
        assert course.causes(course.later, gpu) == course.causes(course.stopped, gpu)
        assert after["starved_seconds"] == before["starved_seconds"]
        assert after["suspected_seconds"] == 0

    @pytest.mark.parametrize("gpu", STOPPED, ids=[*ALONE, "rank 0"])
    def test_is_starved_for_no_more_than_until_the_next_look_at_it(
        self, course: Course, gpu: int
    ) -> None:
        assert course.later["gpus"][gpu]["starved_seconds"] < 3 * TICK_S

    @pytest.mark.parametrize("gpu", STOPPED, ids=[*ALONE, "rank 0"])
    def test_works_on_and_is_not_starved_once_it_is_resumed(self, course: Course, gpu: int) -> None:
        before, after = course.later["gpus"][gpu], course.resumed["gpus"][gpu]

        assert not after["now"]["suspended"]
        assert after["busy_seconds"] > before["busy_seconds"]
        assert after["starved_seconds"] < before["starved_seconds"] + 2 * TICK_S


class TestTheOtherRankOfItsJob:
    def test_is_neither_suspended_nor_starved(self, course: Course) -> None:
        before, after = course.stopped["gpus"][FOLLOWS], course.later["gpus"][FOLLOWS]

        assert not after["now"]["suspended"]
        assert after["starved_seconds"] == pytest.approx(before["starved_seconds"], abs=0.5)
        assert after["idle_by_cause"]["not_in_use"] == 0

    def test_waits_for_the_rank_that_is_stopped(self, course: Course) -> None:
        before, after = course.stopped["gpus"][FOLLOWS], course.later["gpus"][FOLLOWS]
        passed_s = after["observed_seconds"] - before["observed_seconds"]
        waited_s = after["idle_by_cause"]["imbalance"] - before["idle_by_cause"]["imbalance"]

        assert waited_s == pytest.approx(passed_s, abs=0.5)

    def test_works_on_with_it(self, course: Course) -> None:
        before, after = course.later["gpus"][FOLLOWS], course.resumed["gpus"][FOLLOWS]

        assert after["busy_seconds"] > before["busy_seconds"]
