"""Specification of one run's own report, though a daemon's counters add up all that it saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.documents.report_codec import decode_report, encode_report
from gpumon.core.judge.advice import advise
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import Report
from gpumon.errors import UsageError
from gpumon.pipeline.past_reports import RunReports
from gpumon.pipeline.reports import report_of
from tests.builders_story import SAVE, STEP, WAIT, Story
from tests.builders_time import s


class Watched:
    """A story whose runs are followed as a daemon does."""

    def __init__(self) -> None:
        self.story = Story()
        self.reports = RunReports()

    def idle(self, seconds: int = 3) -> None:
        """Nobody does anything."""
        for _ in range(seconds):
            self._tick(0.0, ())

    def begin(self, name: str, pid: int) -> str:
        """A run of that name begins, if it has not; the key of its ring."""
        key = f"{name}-{pid}"
        if key not in self.story.rings:
            self.story.ring(name, pid=pid)
            self.story.rings[key] = replace(self.story.rings.pop(name), key=key)
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
        assert self.story.state is not None
        return report_of(self.story.state)

    def of(self, name: str) -> Report:
        return self.reports.of(name, self.now())

    def idle_s(self, name: str) -> dict[IdleCause, float]:
        """What that run lost, in seconds."""
        idle_ns = self.of(name).gpus[0].totals.idle_ns
        return {c: ns / s(1) for c, ns in idle_ns.items() if c is not IdleCause.NOT_IN_USE}

    def _tick(
        self, level: float, phases: list[tuple[float, TrainingPhase]] | tuple[()], key: str = ""
    ) -> None:
        self.reports.follow(self.story.pass_second(level, 0.0, phases=phases, key=key))


class TestTwoRunsOneAfterTheOther:
    def watched(self) -> Watched:
        watched = Watched()
        watched.idle()
        watched.train("slow", WAIT, 20)
        watched.idle(5)
        watched.train("saves", SAVE, 10, pid=43)
        watched.idle(5)
        return watched

    def test_are_added_up_in_the_whole_report_which_says_so(self) -> None:
        watched = self.watched()

        assert watched.now().gpus[0].totals.busy_ns == s(30)
        assert watched.reports.note(watched.now()) == (
            "The figures of GPU 0 add up 2 runs since the daemon began. For one alone: "
            "`gpumon report --run NAME`, where NAME is one of slow and saves."
        )

    @pytest.mark.parametrize(
        ("name", "busy_s", "cause"),
        [("slow", 20, IdleCause.INPUT_WAIT), ("saves", 10, IdleCause.CHECKPOINT)],
    )
    def test_have_figures_of_their_own(self, name: str, busy_s: int, cause: IdleCause) -> None:
        watched = self.watched()

        (gpu,) = watched.of(name).gpus
        assert gpu.totals.busy_ns == s(busy_s)
        assert gpu.totals.in_use_ns == s(2 * busy_s)
        assert watched.idle_s(name) == {cause: busy_s}
        assert [run.run for run in watched.of(name).runs] == [name]
        assert watched.of(name).advice[0].cause == cause.value

    def test_say_when_they_began(self) -> None:
        watched = self.watched()

        began = watched.of("saves").started_at

        assert began == "1970-01-01T00:00:48+00:00"

    def test_have_no_gpus_where_they_were_on_none(self) -> None:
        watched = self.watched()
        watched.story.ring("nowhere", pid=44, gpus=("GPU-9",))
        watched.idle(3)
        watched.story.end_ring("nowhere")
        watched.idle(15)

        report = watched.of("nowhere")

        assert (report.gpus, report.advice) == ((), ())
        assert report.notes[-1] == "It was seen at work on no GPU that is watched."

    def test_leave_out_a_gpu_they_did_not_use(self) -> None:
        watched = self.watched()

        assert [gpu.index for gpu in watched.now().gpus] == [0, 1]
        assert [gpu.index for gpu in watched.of("slow").gpus] == [0]

    def test_are_not_mixed_up_where_they_have_one_name(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("train", WAIT, 20)
        watched.train("train", SAVE, 10, pid=43)
        watched.idle(5)

        assert watched.idle_s("train") == {IdleCause.CHECKPOINT: 10}
        assert "add up 2 runs" in (watched.reports.note(watched.now()) or "")


class TestSeveralRunsOfOneName:
    def watched(self) -> Watched:
        watched = Watched()
        watched.idle()
        for pid, cause in ((42, WAIT), (43, SAVE), (44, TrainingPhase.VALIDATION)):
            watched.train("train", cause, 10, pid=pid)
            watched.idle(3)
        return watched

    def test_are_told_of_where_the_newest_is_shown(self) -> None:
        assert self.watched().of("train").notes[-1] == (
            "This one has pid 44. 2 other runs were called train (pids 43 and 42): "
            "`gpumon report --run PID` shows one of them."
        )

    @pytest.mark.parametrize(
        ("pid", "cause"), [("42", IdleCause.INPUT_WAIT), ("43", IdleCause.CHECKPOINT)]
    )
    def test_are_found_by_pid(self, pid: str, cause: IdleCause) -> None:
        watched = self.watched()

        assert watched.idle_s(pid) == {cause: 10}
        assert "pids 44 and" in watched.of(pid).notes[-1]

    def test_are_listed_in_the_whole_report(self) -> None:
        watched = self.watched()

        assert (watched.reports.note(watched.now()) or "").endswith(
            "NAME is one of train, 42 (an earlier train) and 43 (an earlier train)."
        )

    def test_are_told_of_too_where_one_lives_beside_the_other(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("train", WAIT, 5, ends=False)
        watched.begin("train", 43)
        watched.idle(2)

        assert [run.run for run in watched.now().runs] == ["train", "train-43"]
        assert watched.of("train").notes[-1] == (
            "This one has pid 42. Another run was called train: `gpumon report --run 43` shows it."
        )
        assert "`gpumon report --run 42` shows it" in watched.of("train-43").notes[-1]

    def test_are_over_where_the_next_began_at_once(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("slow", WAIT, 3)
        watched.begin("slow", 43)
        watched.idle()

        report = watched.of("42")

        assert [run.alive for run in report.runs] == [False]
        assert report.advice[-1].text.startswith("The training is over: ")

    def test_are_not_told_of_where_there_is_one(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("train", WAIT, 10)
        watched.train("other", WAIT, 10, pid=43)

        assert not any("was called" in note for note in watched.of("train").notes)

    def test_lose_their_pid_to_one_that_is_called_like_it(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("slow", WAIT, 5)
        watched.train("42", SAVE, 5, pid=43)
        watched.idle(3)

        assert watched.idle_s("42") == {IdleCause.CHECKPOINT: 5}


class TestWhetherARunStarvesNow:
    def starves(self, watched: Watched, name: str) -> bool:
        return watched.of(name).gpus[0].totals.starved_now

    def test_is_said_of_itself_and_not_of_the_one_before_it(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("slow", WAIT, 20)
        watched.train("fast", SAVE, 8, pid=43, ends=False)

        assert watched.now().gpus[0].totals.starved_now
        assert not self.starves(watched, "fast")

    def test_is_so_while_it_waits(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("saves", SAVE, 40)
        watched.train("slow", WAIT, 8, pid=43, ends=False)

        assert self.starves(watched, "slow")

    def test_is_judged_by_its_last_minute_where_it_has_one(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("train", WAIT, 10, ends=False)
        watched.train("train", STEP, 70, ends=False)

        assert not self.starves(watched, "train")

    def test_is_not_said_of_one_that_is_over(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("slow", WAIT, 20)
        watched.idle(5)

        assert watched.now().gpus[0].totals.starved_now
        assert not self.starves(watched, "slow")


class TestARun:
    def test_that_is_under_way_is_told_up_to_now(self) -> None:
        watched = Watched()
        watched.train("first", SAVE, 10)
        watched.idle(5)
        watched.train("slow", WAIT, 20, pid=43, ends=False)

        assert watched.of("slow").gpus[0].totals.busy_ns == s(20)
        assert watched.idle_s("slow") == {IdleCause.INPUT_WAIT: 20}

    def test_alone_since_the_daemon_began_needs_no_note(self) -> None:
        watched = Watched()
        watched.train("slow", WAIT, 20)
        watched.idle(5)

        assert watched.reports.note(watched.now()) is None

    def test_that_is_older_than_the_daemon_says_that_it_may_be(self) -> None:
        watched = Watched()
        watched.train("slow", WAIT, 20)

        assert any("older than the daemon" in note for note in watched.of("slow").notes)

    def test_that_is_unknown_is_refused_with_the_names_there_are(self) -> None:
        watched = Watched()
        watched.train("slow", WAIT, 5)

        with pytest.raises(UsageError, match=r"no run is called 'fast' here; the runs here: slow$"):
            watched.of("fast")

    def test_is_found_after_its_ring_has_been_removed(self) -> None:
        watched = Watched()
        watched.idle()
        watched.train("slow", WAIT, 20)
        watched.idle(5)
        watched.story.rings.clear()
        watched.idle(5)

        assert watched.idle_s("slow") == {IdleCause.INPUT_WAIT: 20}

    def test_beside_another_on_its_gpu_says_so(self) -> None:
        watched = Watched()
        watched.idle()
        watched.story.ring("other", pid=7)
        watched._tick(1.0, [(0.0, STEP)], "other")
        watched.train("slow", WAIT, 20)

        assert any("at the same time: other" in note for note in watched.of("slow").notes)


def test_only_so_many_that_ended_are_kept() -> None:
    watched = Watched()
    for number in range(70):
        watched.train(f"run{number}", WAIT, 1, pid=100 + number)
        watched.idle(2)
        watched.story.rings.clear()
        watched.idle(1)

    assert len(watched.reports._finished) == 64
    assert watched.of("run69").runs[0].run == "run69"


class TestARunThatEndedBeforeObservationBegan:
    @pytest.fixture
    def watched(self) -> Watched:
        watched = Watched()
        watched.story.ring("yesterday", pid=7)
        ring = watched.story.rings["yesterday"]
        ended_ns = ring.facts.started_ns - s(60)
        watched.story.rings["yesterday"] = replace(ring, alive=False, ended_ns=ended_ns)
        watched.train("today", STEP, 3)
        return watched

    def test_is_told_from_one_that_ended_since(self, watched: Watched) -> None:
        told = {run.run: run.ended_before for run in watched.now().runs}

        assert told == {"yesterday": True, "today": False}

    def test_stays_so_in_json(self, watched: Watched) -> None:
        document = encode_report(watched.now())

        assert [run.ended_before for run in decode_report(document).runs] == [False, True]

    @pytest.mark.parametrize("name", ["yesterday", "7"])
    def test_is_refused_with_the_reason_where_it_is_asked_for(
        self, watched: Watched, name: str
    ) -> None:
        with pytest.raises(UsageError, match="had ended before observation began"):
            watched.of(name)

    def test_changes_no_advice(self, watched: Watched) -> None:
        gpus = watched.now().gpus
        (_, before) = watched.now().runs

        assert advise(gpus, (before,)) == advise(gpus, ())
