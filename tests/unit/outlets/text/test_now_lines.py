"""Specification of a headline on the present: since when, and which run makes no progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.diagnosis.messages import AWAIT_FIRST_BATCH
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.verdict import VerdictName
from gpumon.outlets.text.headline import main_gpu, verdict_line, why_line
from gpumon.outlets.text.now_lines import (
    clock,
    waits_for_first_batch,
    what_to_do_without_a_gpu,
)
from gpumon.outlets.text.report_lines import next_line
from tests.builders.report import gpu, report, run, with_totals
from tests.builders.time import s

WAIT, SAVE, NOT_IN_USE = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.NOT_IN_USE
STARVED, HEALTHY, HANGING = VerdictName.STARVED, VerdictName.HEALTHY, VerdictName.HANGING
UNUSED = VerdictName.NOT_IN_USE
BEGAN_S = 7  # the report's beginning, on the clock of the intervals
AT_14_03 = s(BEGAN_S + 3 * 60)


def at_work(
    name: VerdictName,
    window: Mapping[IdleCause, float],
    *,
    whole: Mapping[IdleCause, float] | None = None,
    index: int = 0,
    **now: Any,
) -> GpuReport:
    """A GPU with this current verdict, since 14:03, on the last 100 s in use."""
    one = gpu(200, window if whole is None else whole, index=index)
    totals = gpu(100 - sum(window.values()), window).totals
    found = NowVerdict(name, now.pop("since_ns", AT_14_03), totals, diagnose(totals), **now)
    if name is HANGING:
        one = with_totals(one, hanging_now=True)
    return replace(one, now=found)


def live(*gpus: GpuReport, runs: tuple[RunReport, ...] = ()) -> Report:
    """A report that began at 14:00, an hour ago."""
    return replace(
        report(*gpus, runs=runs), started_at="2026-11-28T14:00:00+00:00", observed_ns=s(3600)
    )


def silent(**changes: Any) -> RunReport:
    """The run on GPU 0 that hangs since 14:03."""
    found = RunSilence(AT_14_03, TrainingPhase.INPUT_WAIT, s(360), hanging_from_ns=AT_14_03)
    return replace(run(), silence=found._replace(**changes))


HANGS = live(at_work(HANGING, {WAIT: 20}), runs=(silent(),))
STOPPED = live(
    at_work(UNUSED, {WAIT: 20}, is_suspended=True),
    runs=(replace(run(), suspended_since_ns=AT_14_03),),
)
FIRST_BATCH = live(
    replace(gpu(0, {NOT_IN_USE: 60}), now=at_work(UNUSED, {}).now),
    runs=(silent(is_first_batch=True, hanging_from_ns=None),),
)


class TestTheClock:
    @pytest.mark.parametrize(
        ("one", "after_s", "time"),
        [
            (live(gpu(60)), 0, "14:00 UTC"),
            (live(gpu(60)), 3599, "14:59 UTC"),
            (replace(live(gpu(60)), observed_ns=s(86_400)), 180, "2026-11-28 14:03 UTC"),
            (replace(live(gpu(60)), started_at="2026-11-28T16:00:00+02:00"), 180, "16:03 +0200"),
            (replace(live(gpu(60)), started_at=None), 180, ""),
        ],
        ids=["its beginning", "today", "another day", "another zone", "no wall clock"],
    )
    def test_is_the_time_of_day(self, one: Report, after_s: float, time: str) -> None:
        assert clock(one, s(BEGAN_S + after_s)) == time


class TestTheTitle:
    @pytest.mark.parametrize(
        ("one", "title"),
        [
            (at_work(STARVED, {WAIT: 40}), "starved since 14:03 UTC (high loss): "),
            (at_work(HEALTHY, {WAIT: 1}), "healthy since 14:03 UTC: "),
            (at_work(HEALTHY, {WAIT: 1}, before=STARVED), "recovered at 14:03 UTC: "),
            (at_work(HEALTHY, {WAIT: 1}, before=VerdictName.PARTIAL), "recovered at 14:03 UTC: "),
            (at_work(HEALTHY, {WAIT: 1}, before=UNUSED), "healthy since 14:03 UTC: "),
            (
                at_work(UNUSED, {WAIT: 40}, ended_ns=AT_14_03),
                "starved (high loss) in the job that ended at 14:03 UTC: ",
            ),
            (at_work(VerdictName.STALLED, {SAVE: 8}), "stalled since 14:03 UTC (moderate loss): "),
        ],
        ids=["starved", "healthy", "recovered", "of a lesser loss", "resumed", "ended", "stalled"],
    )  # fmt: skip
    def test_has_since_when_it_has_been_so(self, one: GpuReport, title: str) -> None:
        assert verdict_line(live(one)).startswith(title)

    def test_keeps_its_severity_between_the_threshold_to_begin_and_that_to_end(self) -> None:
        assert verdict_line(live(at_work(STARVED, {WAIT: 4}))) == (
            "starved since 14:03 UTC (moderate loss): GPU 0 spends 4.0 % of its time in use "
            "waiting for input."
        )

    @pytest.mark.parametrize("one", [HANGS, STOPPED, live(at_work(STARVED, {WAIT: 40}))])
    def test_has_no_time_where_there_is_no_wall_clock(self, one: Report) -> None:
        line = verdict_line(replace(one, started_at=None))

        assert "since" not in line
        assert "UTC" not in line

    def test_of_a_part_of_the_time_is_not_on_the_present(self) -> None:
        part = replace(live(at_work(HEALTHY, {}, whole={WAIT: 200}, before=STARVED)), is_part=True)

        assert verdict_line(part).startswith("starved (high loss): GPU 0")


class TestAJobThatEnded:
    ENDED = at_work(UNUSED, {WAIT: 40}, ended_ns=AT_14_03)

    def test_comes_after_one_that_goes_on(self) -> None:
        present = at_work(VerdictName.STALLED, {SAVE: 8}, index=1)

        line = verdict_line(live(self.ENDED, present))

        assert line.startswith("stalled since")
        assert "GPU 0 is not in use now." in line

    def test_waits_for_no_first_batch(self) -> None:
        over = replace(FIRST_BATCH.gpus[0], now=self.ENDED.now)

        assert waits_for_first_batch(over, FIRST_BATCH) == []


class TestSinceTheStart:
    def test_is_left_out_where_all_of_the_time_is_of_now(self) -> None:
        one = at_work(STARVED, {WAIT: 40})
        assert one.now is not None

        assert "Since" not in why_line(live(replace(one, totals=one.now.totals)))

    @pytest.mark.parametrize(
        ("whole", "sentence"),
        [
            ({SAVE: 49, WAIT: 1}, "has been idle for 20 % of its 4 min 10 s in use."),
            ({SAVE: 40, WAIT: 10}, "in use, and has waited for input for 4.0 %."),
        ],
    )
    def test_names_a_wait_for_input_that_matters(
        self, whole: Mapping[IdleCause, float], sentence: str
    ) -> None:
        assert why_line(live(at_work(HEALTHY, {}, whole=whole))).endswith(sentence)


class TestARunThatHangs:
    def test_is_explained_by_its_steps_and_where_it_sleeps(self) -> None:
        asleep = live(*HANGS.gpus, runs=(silent(sleeps_in="futex_wait_queue"),))

        assert why_line(asleep).startswith(
            "Run train (pid 4711) had counted 500 steps by then. Its process sleeps in the "
            "kernel, in futex_wait_queue."
        )

    @pytest.mark.parametrize(
        "word", ["worker", "prefetch", "times as fast", "healthy", "give", "recovered"]
    )
    def test_gets_no_other_advice_than_to_look_at_it(self, word: str) -> None:
        assert "gpumon why 4711 --once" in next_line(HANGS)
        assert word not in f"{verdict_line(HANGS)} {why_line(HANGS)} {next_line(HANGS)}"

    @pytest.mark.parametrize("name", [STARVED, HEALTHY])
    def test_comes_before_all_other_gpus(self, name: VerdictName) -> None:
        other = at_work(name, {WAIT: 90}, index=1)
        both = live(*HANGS.gpus, other, runs=HANGS.runs).at_present

        assert main_gpu(both.gpus) is both.gpus[0]


class TestRunsWithoutAGpu:
    def test_are_reported_by_the_first_that_counts_no_step(self) -> None:
        """Here one that is silent for reasons of its own, such as a long checkpoint."""
        saves = silent(hanging_from_ns=None)
        first_batch = silent(hanging_from_ns=None, is_first_batch=True)

        assert what_to_do_without_a_gpu([run(), saves, first_batch]) == ""
        assert what_to_do_without_a_gpu([run(), first_batch, saves]) == AWAIT_FIRST_BATCH


class TestASuspendedRun:
    def test_is_the_process_on_the_gpu_where_no_run_is_known(self) -> None:
        assert verdict_line(replace(STOPPED, runs=())).endswith("The process on GPU 0 is stopped.")

    def test_on_another_gpu_is_not_named(self) -> None:
        other = replace(STOPPED.runs[0], run="other", gpu_uuids=("GPU-1",))

        assert "other" not in verdict_line(replace(STOPPED, runs=(*STOPPED.runs, other)))


class TestAFirstBatch:
    def test_of_a_run_on_another_gpu_is_not_waited_for_here(self) -> None:
        (waiting,) = FIRST_BATCH.runs
        elsewhere = replace(FIRST_BATCH, runs=(replace(waiting, gpu_uuids=("GPU-1",)),))

        assert waits_for_first_batch(FIRST_BATCH.gpus[0], elsewhere) == []
