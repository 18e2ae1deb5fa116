"""Specification of the view of the present: headline, GPUs in order of need, and their words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.accounting.totals import NowVerdict
from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.codecs.view_codec import decode_view, encode_view
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.state import MonitorState
from gpumon.core.verdict import VerdictName
from gpumon.core.view.view import GpuView, MonitorView
from gpumon.core.wording import capital, label_text
from gpumon.errors import UsageError
from gpumon.outlets.http.page_history import PageHistory
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.monitor_view import ViewBuilder, headline_of
from gpumon.outlets.text.report_lines import next_line
from gpumon.pipeline.report_builder import Reports
from gpumon.pipeline.state_report import report_of
from tests.builders.report import gpu, report, run, with_totals
from tests.builders.sixteen_gpus import (
    HELD,
    LONG_S,
    LOST,
    STARVED_GPU,
    STARVED_RUN,
    WELL,
    SixteenGpus,
)
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
            (report(now(STARVED)), "bad", "40 % of GPU time lost"),
            (report(now(gpu(92, {SAVE: 8}))), "warn", "8.0 % of GPU time lost"),
            (report(now(WORKS)), "good", "0 % of GPU time lost"),
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

        assert (page.tone.value, page.title) == ("good", "0 % of GPU time lost")
        assert page.verdict.startswith("Recovered at")


@pytest.fixture(scope="module")
def sixteen() -> MonitorView:
    """Sixteen GPUs: one starved by a cold disk, one lost with XID 79, two held idle."""
    machine, reports, history = SixteenGpus(1_796_000_000.0), Reports(), PageHistory()

    def follow(state: MonitorState) -> None:
        reports.follow(state)
        history.append(state)

    state = machine.play(LONG_S, follow)
    return ViewBuilder().view(state, reports.report_on(state), history.cells())


def shown(view: MonitorView, label: int) -> GpuView:
    return next(one for one in view.gpus if one.label == str(label))


class TestSixteenGpus:
    def test_are_in_order_of_need(self, sixteen: MonitorView) -> None:
        order = [one.label for one in sixteen.gpus]

        assert order[:4] == ["11", "5", "2", "9"]
        assert order[4:12] == [*map(str, WELL)]

    def test_say_which_is_lost_since_when_and_what_to_do(self, sixteen: MonitorView) -> None:
        one = shown(sixteen, LOST)

        assert one.status.word == "lost"
        assert "XID 79" in one.line
        assert one.since_text == "since 01:12 UTC"
        assert "power-cycle" in one.first_advice
        assert (one.utilization_ratio, one.power_watts, one.processes) == (None, None, None)
        assert one.user == "dave"

    def test_say_which_is_starved_by_what_and_whose_it_is(self, sixteen: MonitorView) -> None:
        one = shown(sixteen, STARVED_GPU)

        assert (one.status.word, one.cause, one.reason) == ("starved", "input_wait", "disk_bound")
        assert (one.user, one.runs) == ("alice", (STARVED_RUN,))
        assert one.first_advice.startswith("The disk is the limit")
        assert one.lost_ratio == pytest.approx(sum(one.lost_by_cause.values()))
        assert one.troubles == ()

    @pytest.mark.parametrize("label", HELD)
    def test_say_who_holds_one_and_whom_to_ask(self, sixteen: MonitorView, label: int) -> None:
        one = shown(sixteen, label)

        assert one.status.word == "held idle"
        assert one.held_by is not None
        assert (one.held_by.user, one.held_by.pid) == ("bob", 7000 + label)
        assert one.first_advice.startswith(f"Ask bob whether process {7000 + label} is still")
        assert one.first_advice.count("Ask") == 1

    def test_have_nothing_to_do_where_all_is_well(self, sixteen: MonitorView) -> None:
        for label in WELL:
            one = shown(sixteen, label)
            assert (one.status.word, one.first_advice, one.hint) == ("healthy", "", "")

    def test_have_cells_that_add_up_to_the_last_ten_minutes(self, sixteen: MonitorView) -> None:
        starved, lost_one = shown(sixteen, STARVED_GPU).cells, shown(sixteen, LOST).cells

        assert {len(part) for part in starved.parts.values()} == {60}
        assert sum(map(sum, starved.parts.values())) == pytest.approx(600, abs=10)
        assert sum(map(sum, lost_one.parts.values())) == pytest.approx(420, abs=12)
        assert starved.parts["input_wait"][0] == pytest.approx(0, abs=1)
        assert starved.parts["input_wait"][-2] == pytest.approx(5.5, abs=0.3)

    def test_sum_up_to_the_observed_time(self, sixteen: MonitorView) -> None:
        for one in sixteen.gpus:
            parts_ns = one.busy_ns + one.pending_ns + sum(one.idle_ns.values())
            assert parts_ns == one.observed_ns, one.label

    def test_are_the_same_after_a_trip_through_json(self, sixteen: MonitorView) -> None:
        document = json.loads(encode_document(encode_view(sixteen)))

        assert encode_view(decode_view(document)) == document

    def test_show_names_that_are_safe(self) -> None:
        machine = SixteenGpus(1_796_000_000.0)
        evil = "<b>\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}x"
        first = machine.processes[0]
        assert first is not None
        machine.processes[0] = (first[0]._replace(name=evil, user=evil),)
        state = machine.play(3, lambda _: None)

        one = shown(ViewBuilder().view(state, report_of(state), {}), 0)

        assert one.processes is not None
        names = {one.user, one.processes[0].user, one.processes[0].command}
        assert names == {label_text(evil)}
        assert all(name is not None and name.isprintable() for name in names)


class TestADocumentThatIsNone:
    @pytest.mark.parametrize(
        ("document", "why"),
        [
            ([], "expected an object"),
            ({"schema": "gpumon.state/1"}, "this is no gpumon.view/1 document"),
            ({"schema": "gpumon.view/1"}, "lacks the field"),
        ],
    )
    def test_is_refused_with_the_reason(self, document: object, why: str) -> None:
        with pytest.raises(UsageError, match=why):
            decode_view(document)
