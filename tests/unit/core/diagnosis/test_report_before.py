"""A report joined with the time before the daemon began: sums close, notes name what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.report_before import EarlierTime, joined_totals, report_with_earlier
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from tests.builders.report import gpu, report
from tests.builders.time import s

NOON_S = 1_790_078_400.0  # 2026-09-22 12:00 UTC
STARTED_AT = "2026-09-22T12:00:00+00:00"
BEFORE = gpu(100.0, {IdleCause.INPUT_WAIT: 300.0}, pauses=4).totals


def earlier(totals: GpuTotals = BEFORE, *, uuid: str = "GPU-0", is_cut: bool = False,
            gaps: tuple[tuple[float, float], ...] = ()) -> EarlierTime:  # fmt: skip
    """What was watched from 11:00."""
    return EarlierTime({uuid: totals}, NOON_S - 3600, is_cut, gaps)


@pytest.fixture
def now() -> Report:
    known = report(gpu(90.0, {IdleCause.CHECKPOINT: 10.0}, pauses=2))
    return replace(known, started_at=STARTED_AT, origin_ns=s(7200), notes=())


class TestTheTotals:
    def test_are_the_sums_of_both_times(self, now: Report) -> None:
        totals = joined_totals(BEFORE, now.gpus[0].totals)

        assert totals.busy_ns == s(190)
        assert totals.idle_ns == {IdleCause.INPUT_WAIT: s(300), IdleCause.CHECKPOINT: s(10)}
        assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
        assert (totals.pauses.count, totals.pauses.total_ns) == (6, s(310))

    def test_of_no_pause_leave_those_there_were(self, now: Report) -> None:
        totals = joined_totals(BEFORE, gpu(90.0).totals)

        assert totals.pauses == BEFORE.pauses

    def test_keep_whether_it_hangs_now(self, now: Report) -> None:
        hanging = now.gpus[0].totals._replace(hanging_now=True)

        assert joined_totals(BEFORE, hanging).hanging_now
        assert not joined_totals(BEFORE._replace(hanging_now=True), now.gpus[0].totals).hanging_now


class TestTheReport:
    def test_has_the_verdict_on_both_times(self, now: Report) -> None:
        joined = report_with_earlier(earlier(), now)

        assert now.gpus[0].verdict.name is VerdictName.STALLED
        assert joined.gpus[0].verdict.name is VerdictName.STARVED
        assert joined.advice
        assert joined.is_part

    def test_begins_where_the_earlier_time_does(self, now: Report) -> None:
        joined = report_with_earlier(earlier(), now)

        assert joined.started_at == "2026-09-22T11:00:00+00:00"
        assert joined.origin_ns == s(3600)
        assert joined.observed_ns == s(500)

    def test_says_how_far_back_it_reaches(self, now: Report) -> None:
        whole, cut = (report_with_earlier(earlier(is_cut=is_cut), now) for is_cut in (False, True))

        assert whole.notes[0] == "This reaches back to 11:00 UTC, over restarts of gpumon."
        assert cut.notes[0] == "This reaches back to 11:00 UTC: nothing earlier is kept."
        assert whole.notes[-1] == (
            "Runs and their steps are those since gpumon started at 12:00 UTC."
        )

    def test_names_the_longest_times_without_gpumon(self, now: Report) -> None:
        gaps = [(NOON_S - 3000 + 300 * n, NOON_S - 3000 + 300 * n + 60 + n) for n in range(6)]
        joined = report_with_earlier(earlier(gaps=(*gaps, (NOON_S - 10.0, NOON_S - 9.5))), now)

        (note,) = [note for note in joined.notes if note.startswith("Not watched")]
        assert note == (
            "Not watched from 11:20 to 11:21 UTC, from 11:25 to 11:26 UTC, from 11:30 to 11:31 "
            "UTC, from 11:35 to 11:36 UTC and 2 times more (2 min 1 s in all): gpumon was not "
            "running."
        )

    def test_leaves_out_gpus_that_are_gone_and_says_so(self, now: Report) -> None:
        joined = report_with_earlier(earlier(uuid="GPU-9"), now)

        assert joined.gpus == now.gpus
        assert "Not counted: 6 min 40 s of 1 GPU that is no longer here." in joined.notes
