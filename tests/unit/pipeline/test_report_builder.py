"""The report of one run, though a daemon's counters add up all runs.

Its sentences are in ``tests/golden``.
"""

from __future__ import annotations

import re

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.diagnosis.advice import advise
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import Report
from gpumon.errors import UsageError
from gpumon.pipeline.report_builder import Reports, RunReports
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import SAVE, STEP, WAIT, Phases, Story
from tests.builders.time import s

VALIDATE = TrainingPhase.VALIDATION


class Watched:
    """A story whose runs are followed as by a daemon; nothing happens at first."""

    def __init__(self, idle_s: int = 3) -> None:
        self.story = Story()
        self.reports = RunReports()
        self.idle(idle_s)

    def idle(self, seconds: int = 3) -> None:
        """Nothing happens."""
        for _ in range(seconds):
            self._tick(0.0)

    def begin(self, name: str, pid: int) -> str:
        """A run of that name begins, if it has not; the key of its ring."""
        key = f"{name}-{pid}"
        if key not in self.story.rings:
            self.story.ring(key, run=name, pid=pid)
        return key

    def train(
        self, name: str, cause: TrainingPhase, seconds: int, *, pid: int = 42, ends: bool = True
    ) -> None:
        """A run that works and loses time in turns, half a second each."""
        key = self.begin(name, pid)
        for _ in range(seconds):
            self._tick(1.0, [(0.0, STEP)], key)
            self._tick(0.0, [(0.0, cause)], key)
        if ends:
            self.story.end_ring(key)

    def now(self) -> Report:
        return report_of(self.story.state)

    def of(self, name: str) -> Report:
        return self.reports.of(name, self.now())

    def note(self) -> str:
        """The note on runs in the complete report."""
        return self.reports.note(self.now()) or ""

    def idle_s(self, name: str) -> dict[IdleCause, float]:
        """What that run lost, in seconds."""
        idle_ns = self.of(name).gpus[0].totals.idle_ns
        return {c: ns / s(1) for c, ns in idle_ns.items() if c is not IdleCause.NOT_IN_USE}

    def starves(self, name: str) -> bool:
        return self.of(name).gpus[0].totals.starved_now

    def _tick(self, level: float, phases: Phases = (), key: str = "") -> None:
        self.reports.follow(self.story.pass_second(level, 0.0, phases=phases, key=key))


def pids_in(message: str) -> list[str]:
    return re.findall(r"\b4\d\b", message)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def slow(watched: Watched) -> Watched:
    """A run that waited for input has ended a while ago."""
    watched.train("slow", WAIT, 20)
    watched.idle(5)
    return watched


class TestTwoRunsOneAfterTheOther:
    @pytest.fixture
    def watched(self, slow: Watched) -> Watched:
        slow.train("saves", SAVE, 10, pid=43)
        slow.idle(5)
        return slow

    @pytest.mark.parametrize(
        ("name", "busy_s", "cause"),
        [("slow", 20, IdleCause.INPUT_WAIT), ("saves", 10, IdleCause.CHECKPOINT)],
    )
    def test_have_figures_of_their_own_and_of_the_gpu_they_used(
        self, watched: Watched, name: str, busy_s: int, cause: IdleCause
    ) -> None:
        (gpu,) = watched.of(name).gpus  # of two
        assert watched.now().gpus[0].totals.busy_ns == s(30)
        assert re.findall(r"GPU \d|\d runs|slow|saves", watched.note()) == [
            "GPU 0", "2 runs", "slow", "saves",
        ]  # fmt: skip

        assert gpu.totals.busy_ns == s(busy_s)
        assert gpu.totals.in_use_ns == s(2 * busy_s)
        assert watched.idle_s(name) == {cause: busy_s}
        assert [run.run for run in watched.of(name).runs] == [name]
        assert watched.of("saves").started_at == "1970-01-01T00:00:48+00:00"
        assert watched.of(name).advice[0].cause == cause.value

    def test_have_no_gpus_where_they_were_on_none(self, watched: Watched) -> None:
        watched.story.ring("nowhere", pid=44, gpus=("GPU-9",))
        watched.idle(3)
        watched.story.end_ring("nowhere")
        watched.idle(15)

        report = watched.of("nowhere")

        assert (report.gpus, report.advice) == ((), ())
        assert "no GPU" in report.notes[-1]


class TestSeveralRunsOfOneName:
    @pytest.fixture
    def thrice(self, watched: Watched) -> Watched:
        for pid, cause in ((42, WAIT), (43, SAVE), (44, VALIDATE)):
            watched.train("train", cause, 10, pid=pid)
            watched.idle(3)
        return watched

    @pytest.mark.parametrize(
        ("name", "cause", "pids"),
        [
            ("train", IdleCause.VALIDATION, ["44", "43", "42"]),
            ("42", IdleCause.INPUT_WAIT, ["42", "44"]),
            ("43", IdleCause.CHECKPOINT, ["43", "44"]),
        ],
    )
    def test_are_found_by_pid_and_noted_with_the_others(
        self, thrice: Watched, name: str, cause: IdleCause, pids: list[str]
    ) -> None:
        assert thrice.idle_s(name) == {cause: 10}
        assert pids_in(thrice.of(name).notes[-1])[: len(pids)] == pids
        assert pids_in(thrice.note().partition("one of ")[2]) == ["42", "43"]

    def test_are_also_noted_if_both_live(self, watched: Watched) -> None:
        watched.train("train", WAIT, 5, ends=False)
        watched.begin("train", 43)
        watched.idle(2)

        assert [run.run for run in watched.now().runs] == ["train", "train-43"]
        assert pids_in(watched.of("train").notes[-1]) == ["42", "43"]
        assert pids_in(watched.of("train-43").notes[-1]) == ["43", "42"]

    def test_are_over_where_the_next_took_the_label_at_once(self, watched: Watched) -> None:
        watched.train("train", WAIT, 3)
        watched.begin("train", 43)
        watched.idle()

        report = watched.of("42")

        assert [run.alive for run in report.runs] == [False]
        assert " is over: " in report.advice[-1].text

    def test_are_found_newest_first_where_one_has_the_pid_of_an_older_one(
        self, watched: Watched
    ) -> None:
        for pid, cause in ((42, WAIT), (43, SAVE), (42, VALIDATE)):
            watched.train("train", cause, 5, pid=pid)
            watched.idle()
            watched.story.rings.clear()
            watched.idle()

        assert watched.idle_s("train") == {IdleCause.VALIDATION: 5}

    def test_lose_their_pid_to_a_run_of_that_name(self, slow: Watched) -> None:
        slow.train("42", SAVE, 5, pid=43)
        slow.idle(3)

        assert slow.idle_s("42") == {IdleCause.CHECKPOINT: 5}


class TestWhetherARunStarvesNow:
    def test_is_about_itself_and_not_about_the_one_before_it(self, watched: Watched) -> None:
        watched.train("slow", WAIT, 20)
        watched.train("fast", SAVE, 8, pid=43)
        assert watched.now().gpus[0].totals.starved_now
        assert not watched.starves("fast")

        watched.train("late", WAIT, 8, pid=44, ends=False)
        assert watched.starves("late")

    def test_is_diagnosed_by_its_last_minute_where_it_has_one(self, watched: Watched) -> None:
        watched.train("train", WAIT, 10, ends=False)
        watched.train("train", STEP, 70, ends=False)

        assert not watched.starves("train")


class TestARun:
    def test_that_the_daemon_began_with_is_reported_up_to_now_and_may_be_older(self) -> None:
        watched = Watched(idle_s=0)
        watched.train("slow", WAIT, 20, ends=False)

        assert watched.of("slow").gpus[0].totals.busy_ns == s(20)
        assert watched.idle_s("slow") == {IdleCause.INPUT_WAIT: 20}
        assert watched.reports.note(watched.now()) is None
        assert any(" older " in note for note in watched.of("slow").notes)
        assert not any("pid" in note for note in watched.of("slow").notes)
        assert list(watched.reports._runs_on) == ["GPU-0"]
        watched.reports.follow(watched.story.state._replace(gpus=()))
        assert not watched.reports._runs_on

    def test_beside_another_on_its_gpu_has_a_note(self, watched: Watched) -> None:
        watched.train("other", STEP, 1, pid=7, ends=False)
        watched.train("slow", WAIT, 20)

        assert any(": other." in note for note in watched.of("slow").notes)

    def test_that_is_unknown_is_refused_with_the_names_there_are(self, slow: Watched) -> None:
        with pytest.raises(UsageError, match=r"'fast' .*: slow$"):
            slow.of("fast")


def test_only_so_many_that_ended_are_kept(watched: Watched) -> None:
    for number in range(70):
        watched.train(f"run{number}", WAIT, 1, pid=100 + number)
        watched.idle(2)
        watched.story.rings.clear()
        watched.idle(1)

    assert len(watched.reports._finished) == 64
    assert watched.idle_s("run69") == {IdleCause.INPUT_WAIT: 1}  # though its ring is gone


class TestARunThatEndedBeforeObservationBegan:
    @pytest.fixture
    def watched(self) -> Watched:
        watched = Watched(idle_s=0)
        watched.story.ring("yesterday", pid=7)
        watched.story.end_ring("yesterday", after_s=-60)
        watched.train("today", STEP, 3)
        return watched

    def test_is_distinguished_from_one_that_ended_since_also_in_json(
        self, watched: Watched
    ) -> None:
        now = watched.now()

        for report in (now, decode_report(encode_report(now))):
            reported = {run.run: run.ended_before for run in report.runs}
            assert reported == {"yesterday": True, "today": False}
        (_, before) = now.runs
        assert advise(now.gpus, (before,)) == advise(now.gpus, ())

    @pytest.mark.parametrize("name", ["yesterday", "7"])
    def test_is_refused_with_the_reason(self, watched: Watched, name: str) -> None:
        with pytest.raises(UsageError, match=f"'{name}' .* ended before"):
            watched.of(name)


class TestTheLanesOfOneRun:
    @pytest.fixture
    def reports(self) -> Reports:
        """A run of 4 s, another one of 6 s on the same GPU a while later, and then none."""
        story, reports = Story(), Reports()
        for name, busy_s in (("first", 4), ("second", 6)):
            for _ in range(3):
                reports.follow(story.pass_second(0.0))
            story.ring(name, pid=busy_s)
            for second in range(busy_s):
                phases = [(0.0, STEP)] if second == 0 else ()
                reports.follow(story.pass_second(1.0, phases=phases, key=name))
            story.end_ring(name)
        for _ in range(30):
            reports.follow(story.pass_second(0.0))
        return reports

    @pytest.mark.parametrize(("run", "busy_s"), [("first", 4), ("second", 6)])
    def test_have_its_time_alone_until_they_are_no_longer_kept(
        self, reports: Reports, monkeypatch: pytest.MonkeyPatch, run: str, busy_s: int
    ) -> None:
        reported = reports.report_with_lanes(run=run)

        assert reported is not None
        assert reported.lanes is not None
        (gpu,), (lane,) = reported.lanes
        assert sum(gpu.busy_ns) == s(busy_s)
        assert {phase: sum(cells) for phase, cells in lane.phase_ns.items()} == {STEP: s(busy_s)}
        assert lane.end_ns <= gpu.end_ns <= lane.end_ns + s(3)

        monkeypatch.setattr(reports._lanes, "end_of", lambda run: None)
        assert reports.report_with_lanes(run=run) == reported._replace(lanes=None)
