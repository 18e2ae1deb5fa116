"""Specification of the view of the present: headline, GPUs in order of need, and their words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import capital
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.monitor_view import headline_of
from gpumon.outlets.text.report_lines import next_line
from tests.builders.report import gpu, report, run, with_totals
from tests.builders.time import s

WAIT, SAVE, NOT_IN_USE = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.NOT_IN_USE
UNUSED = VerdictName.NOT_IN_USE


def now(one: GpuReport, **changes: Any) -> GpuReport:
    """The GPU, with all its time as its present."""
    found = NowVerdict(one.verdict.name, s(37), one.totals, one.verdict)
    return replace(one, now=found._replace(**changes))


STARVED, WORKS = gpu(60, {WAIT: 40}), gpu(100, {})
UNUSED_GPU = gpu(0, {NOT_IN_USE: 100})
SUSPENDED = report(
    now(STARVED, name=UNUSED, is_suspended=True),
    runs=(replace(run(), suspended_since_ns=s(37)),),
)
HANGING = report(
    now(with_totals(STARVED, hanging_now=True), name=VerdictName.HANGING),
    runs=(
        replace(
            run(), silence=RunSilence(s(37), TrainingPhase.INPUT_WAIT, s(63), hanging_from_ns=s(67))
        ),
    ),
)


class TestTheHeadline:
    @pytest.mark.parametrize(
        "one",
        [report(now(STARVED)), report(now(WORKS)), report(UNUSED_GPU), SUSPENDED, HANGING],
        ids=["starved", "healthy", "unused", "suspended", "hanging"],
    )
    def test_has_the_lines_of_the_terminal(self, one: Report) -> None:
        page = headline_of(one)

        assert page.verdict == capital(verdict_line(one))
        assert page.why == capital(why_line(one))
        assert page.next == capital(next_line(one))

    def test_points_at_the_advice_that_it_gives(self) -> None:
        one = report(now(STARVED))
        place = headline_of(one).advice

        assert place is not None
        assert one.advice[place].text in headline_of(one).next

    @pytest.mark.parametrize("one", [SUSPENDED, report(now(WORKS))], ids=["suspended", "healthy"])
    def test_points_at_none_where_it_gives_none(self, one: Report) -> None:
        assert headline_of(one).advice is None


class TestTheToneAndTheTitle:
    @pytest.mark.parametrize(
        ("one", "tone", "title"),
        [
            (report(now(STARVED)), "bad", "40 % lost"),
            (report(now(gpu(92, {SAVE: 8}))), "warn", "8.0 % lost"),
            (report(now(WORKS)), "good", "0 % lost"),
            (report(now(STARVED, name=UNUSED, ended_ns=s(107))), "bad", ""),
            (report(now(WORKS, name=UNUSED, ended_ns=s(107))), "quiet", ""),
            (report(UNUSED_GPU), "quiet", ""),
            (report(), "quiet", ""),
            (SUSPENDED, "warn", "GPU 0: suspended"),
            (HANGING, "bad", "GPU 0: hanging"),
        ],
        ids=["starved", "stalled", "healthy", "ended and starved", "ended and healthy", "unused",
             "no GPU", "suspended", "hanging"],
    )  # fmt: skip
    def test_are_of_the_present(self, one: Report, tone: str, title: str) -> None:
        page = headline_of(one)

        assert (page.tone.value, page.title) == (tone, title)

    def test_are_not_of_what_was_before(self) -> None:
        well = WORKS.totals
        recovered = now(
            STARVED,
            name=VerdictName.HEALTHY,
            totals=well,
            verdict=diagnose(well),
            before=VerdictName.STARVED,
        )

        page = headline_of(report(recovered))

        assert (page.tone.value, page.title) == ("good", "0 % lost")
        assert page.verdict.startswith("Recovered at")
