"""Training runs that hang, or whose processes are really stopped, and the report on each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.e2e.hurried_daemon import ROOT, HurriedDaemon, started_training
from tests.e2e.run_without_progress import STEPS_BEFORE_HANG
from tests.programs import gpumon
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "e2e" / "run_without_progress.py"
LINE = next(
    number
    for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
    if " in timed(" in line
)
FIRST_BATCH, LATER, STOPS, LEADS, FOLLOWS = range(5)
"""GPUs; the last two are of one job."""
HANGING = {"first_batch": FIRST_BATCH, "later": LATER}
STOPPED = (STOPS, LEADS)
AT_LEAST_S, LATER_S = 1.0, 2.5
TICK_S = 0.5
"""Between two readings of the processes; until the next one, time may go to any cause."""

Document = dict[str, Any]


class Course(NamedTuple):
    """Reports on the same training runs.

    Attributes:
        pids: By GPU.
        stopped: Some time after two of them were stopped.
        stopped_text: The printed report at that time.
        stopped_later: When they had been stopped for longer.
        resumed: When they had gone on.
        hanging: When two others hung.
        hanging_text: The printed report at that time.
        hanging_alone: The printed report on each of the two alone.
        ended: When those that hung had been killed.
        ended_text: The printed report at that time.
    """

    pids: dict[int, int]
    stopped: Document
    stopped_text: str
    stopped_later: Document
    resumed: Document
    hanging: Document
    hanging_text: str
    hanging_alone: dict[str, str]
    ended: Document
    ended_text: str


def printed(daemon: HurriedDaemon, *words: str) -> str:
    """A report in one line."""
    done = gpumon("report", *words, environ={**daemon.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def first_sentence(text: str) -> str:
    return text.partition(" Why: ")[0]


def is_hanging(gpu: Document) -> bool:
    return "hanging" in (gpu["verdict"], gpu["now"]["verdict"])


def hanging(report: Document) -> list[int]:
    return [index for index, gpu in enumerate(report["gpus"]) if is_hanging(gpu)]


def steps(report: Document) -> dict[int, int]:
    return {run["pid"]: run["steps"] for run in report["runs"]}


def unused_s(report: Document) -> float:
    """For how long all stopped runs have left their GPUs not in use."""
    return min(float(report["gpus"][gpu]["idle_by_cause"]["not_in_use"]) for gpu in STOPPED)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    folder = tmp_path_factory.mktemp("standstill")
    daemon = HurriedDaemon(folder, gpus=FOLLOWS + 1)
    fifo = folder / "steps"
    os.mkfifo(fifo)
    runs: dict[int, subprocess.Popen[str]] = {}

    def start(gpu: int, run: str, *words: str, **environ: str) -> None:
        runs[gpu] = stack.enter_context(
            started_training(daemon, PROGRAM, run, gpu, *words, **environ)
        )

    def go_on() -> bool:
        report = daemon.report()
        counted = steps(report)
        return all(counted[runs[gpu].pid] > before[runs[gpu].pid] + 5 for gpu in runs) and not any(
            gpu["now"]["suspended"] for gpu in report["gpus"]
        )

    def both_hang() -> bool:
        report = daemon.report()
        is_long = report["gpus"][LATER]["hanging_seconds"] > 1
        return is_long and hanging(report) == [*HANGING.values()]

    with daemon, ExitStack() as stack:
        start(STOPS, "stops", "stops")
        for rank, (gpu, kind) in enumerate([(LEADS, "leads"), (FOLLOWS, "follows")]):
            start(gpu, "pair", kind, str(fifo), RANK=str(rank), WORLD_SIZE="2")
        for gpu in STOPPED:
            pipe = runs[gpu].stdout
            assert pipe is not None
            assert pipe.readline()
            runs[gpu].send_signal(signal.SIGSTOP)
        wait_until(lambda: unused_s(daemon.report()) > AT_LEAST_S, 60)
        stopped, stopped_text = daemon.report(), printed(daemon)
        wait_until(lambda: unused_s(daemon.report()) > LATER_S, 60)
        stopped_later = daemon.report()
        before = steps(stopped_later)
        for gpu in STOPPED:
            runs[gpu].send_signal(signal.SIGCONT)
        wait_until(go_on, 60)
        resumed = daemon.report()
        for kind, gpu in HANGING.items():
            start(gpu, kind, kind)
        wait_until(both_hang, 60)
        report, text = daemon.report(), printed(daemon)
        alone = {kind: printed(daemon, "--run", kind) for kind in HANGING}
        for gpu in HANGING.values():
            runs[gpu].kill()
        wait_until(lambda: hanging(daemon.report()) == [])
        yield Course(
            {gpu: process.pid for gpu, process in runs.items()},
            stopped, stopped_text, stopped_later, resumed,
            report, text, alone, daemon.report(), printed(daemon),
        )  # fmt: skip


class TestARunThatHangs:
    def test_is_in_the_first_sentence_with_since_when(self, course: Course) -> None:
        assert re.match(r"Verdict: Hanging since \d\d:\d\d UTC: Run ", course.hanging_text)

    def test_is_named_with_process_phase_file_and_line(self, course: Course) -> None:
        alone = course.hanging_alone["later"]
        later = (
            rf"[Rr]un later \(pid {course.pids[LATER]}\) has counted no step for [\d.]+ s: it is "
            rf"waiting for input, in batches_that_end\(\) \({PROGRAM.name}:{LINE}\)"
        )
        first_batch = (
            rf"[Rr]un first_batch \(pid {course.pids[FIRST_BATCH]}\) has waited for its first "
            rf"batch for [\d.]+ s, in no_batch\(\) \({PROGRAM.name}:{LINE}\)"
        )

        assert re.search(later, first_sentence(course.hanging_text))
        assert re.search(later, first_sentence(alone))
        assert re.search(first_batch, first_sentence(course.hanging_text))
        assert f"had counted {STEPS_BEFORE_HANG} steps by then" in alone

    def test_has_advice_on_its_process_and_no_other(self, course: Course) -> None:
        text = course.hanging_alone["later"]

        assert f"gpumon why {course.pids[LATER]} --once" in text
        for word in ("worker", "healthy", "times as fast", "release it"):
            assert word not in text.lower()

    def test_hangs_for_the_time_beyond_the_limit_and_is_not_starved_then(
        self, course: Course
    ) -> None:
        gpu, unused = course.hanging["gpus"][LATER], course.hanging["gpus"][FIRST_BATCH]

        assert gpu["starved_seconds"] == pytest.approx(
            gpu["idle_by_cause"]["input_wait"] - gpu["hanging_seconds"], abs=0.2
        )
        assert (unused["in_use_seconds"], unused["starved_seconds"]) == (0, 0)

    def test_keeps_that_time_but_not_the_verdict_once_it_is_killed(self, course: Course) -> None:
        before, after = (one["gpus"][LATER] for one in (course.hanging, course.ended))

        assert after["hanging_seconds"] >= before["hanging_seconds"]
        assert "hang" not in first_sentence(course.ended_text).lower()


class TestARunThatIsStopped:
    def test_is_in_the_first_sentence_with_since_when(self, course: Course) -> None:
        since = r"Verdict: Suspended since \d\d:\d\d UTC: Run \S+ \(pid \d+\).* are stopped\."

        assert re.match(since, course.stopped_text)

    @pytest.mark.parametrize("gpu", STOPPED, ids=["waiting for input", "in a step"])
    def test_leaves_its_gpu_not_in_use_and_nothing_else(self, course: Course, gpu: int) -> None:
        before, after = (one["gpus"][gpu] for one in (course.stopped, course.stopped_later))
        passed_s = after["observed_seconds"] - before["observed_seconds"]
        grown = {
            cause: seconds - before["idle_by_cause"][cause]
            for cause, seconds in after["idle_by_cause"].items()
        }

        assert (before["now"]["suspended"], before["now"]["verdict"]) == (True, "not_in_use")
        assert f"(pid {course.pids[gpu]}) has been suspended since " in course.stopped_text
        assert passed_s >= LATER_S - AT_LEAST_S - TICK_S
        assert grown.pop("not_in_use") == pytest.approx(passed_s)
        assert not any(grown.values())
        assert after["starved_seconds"] == before["starved_seconds"] < 3 * TICK_S
        assert after["suspected_seconds"] == 0

    @pytest.mark.parametrize("gpu", STOPPED, ids=["waiting for input", "in a step"])
    def test_works_on_and_is_not_starved_once_it_is_resumed(self, course: Course, gpu: int) -> None:
        before, after = (one["gpus"][gpu] for one in (course.stopped_later, course.resumed))

        assert not after["now"]["suspended"]
        assert after["busy_seconds"] > before["busy_seconds"]
        assert after["starved_seconds"] < before["starved_seconds"] + 2 * TICK_S


class TestTheOtherRankOfItsJob:
    def test_waits_for_it_and_is_neither_suspended_nor_starved(self, course: Course) -> None:
        before, after = (one["gpus"][FOLLOWS] for one in (course.stopped, course.stopped_later))
        passed_s = after["observed_seconds"] - before["observed_seconds"]
        waited_s = after["idle_by_cause"]["imbalance"] - before["idle_by_cause"]["imbalance"]

        assert not after["now"]["suspended"]
        assert after["starved_seconds"] == pytest.approx(before["starved_seconds"], abs=0.5)
        unused = [one["idle_by_cause"]["not_in_use"] for one in (before, after)]
        assert unused[0] == unused[1]
        assert waited_s == pytest.approx(passed_s, abs=0.5)

    def test_works_on_with_it(self, course: Course) -> None:
        before, after = (one["gpus"][FOLLOWS] for one in (course.stopped_later, course.resumed))

        assert after["busy_seconds"] > before["busy_seconds"]
