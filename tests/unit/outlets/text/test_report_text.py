"""Specification of the text report: where every second went, on whatever the terminal can show.

Its words are in ``tests/golden``.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report.report import Report
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle, style_for
from tests.builders_report import gpu, report, run, with_totals
from tests.builders_time import s
from tests.unit.outlets.report_lines import PLAIN, STARVED, line_with, shown

WAIT, SAVE, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.CHECKPOINT, IdleCause.UNKNOWN


class TestWhenItBegan:
    @pytest.mark.parametrize(
        ("started_at", "said"),
        [
            ("2026-11-22T03:01:04.997788+00:00", "from 2026-11-22 03:01:04 UTC."),
            ("2026-11-22T03:01:04.500+05:30", "from 2026-11-22 03:01:04 +0530."),
            ("2026-11-22T03:01:04.500", "from 2026-11-22 03:01:04."),
            ("some time ago", "from some time ago."),
        ],
        ids=["in UTC", "in the zone of the log", "without a zone", "no time at all"],
    )
    def test_is_said_as_people_write_a_time(self, started_at: str, said: str) -> None:
        assert said in " ".join(" ".join(shown(replace(STARVED, started_at=started_at))).split())


class TestTheTable:
    def test_marks_the_main_cause_and_nothing_else(self) -> None:
        assert "waiting for input" in line_with("◀", STARVED)
        assert "◀" not in render_report(report(gpu(98, {UNKNOWN: 2})), PLAIN)

    def test_ends_with_the_sum_and_the_coverage(self) -> None:
        words = line_with("sum = observed", STARVED).split()

        assert words[3:] == ["64.0", "s", "100.0", "%", "coverage", "100", "%"]

    def test_puts_the_greatest_loss_first_and_time_out_of_use_last(self) -> None:
        causes = [line for line in shown(STARVED) if line.startswith("  idle, ")]

        assert [cause.split("  ")[1] for cause in causes] == [
            "idle, waiting for input", "idle, during checkpoints", "idle, not in use"
        ]  # fmt: skip

    @pytest.mark.parametrize("busy_s", [2, 400], ids=["of little time", "of much"])
    def test_leaves_out_what_took_next_to_no_time(self, busy_s: float) -> None:
        crumbs = report(gpu(busy_s, {WAIT: busy_s / 20, SAVE: 0.02}))

        rows = [line for line in shown(crumbs) if "idle, during checkpoints" in line]
        assert [row.split()[3:5] for row in rows] == ([["0.02", "s"]] if busy_s == 2 else [])

    def test_keeps_a_gpus_busy_time_though_it_is_none(self) -> None:
        unused = report(gpu(0, {IdleCause.NOT_IN_USE: 60}))

        assert line_with("busy ", unused).split()[:5] == ["busy", "0.0", "s", "0.0", "%"]

    def test_shows_pending_time_as_such(self) -> None:
        one = with_totals(gpu(40, {WAIT: 20}), pending_ns=s(3), observed_ns=s(63))

        assert "3.0 s" in line_with("not decided yet", report(one))
        assert "63.0 s" in line_with("sum = observed", report(one))

    def test_of_many_gpus_is_one_line_each_and_one_table_for_the_worst(self) -> None:
        many = [gpu(60, index=index) for index in range(8)]
        many[5] = gpu(40, {WAIT: 20}, index=5)

        lines = shown(report(*many))

        assert len([line for line in lines if "sum = observed" in line]) == 1
        assert len([line for line in lines if line.startswith("GPU 5, NVIDIA A40")]) == 1
        assert len([line for line in lines if line.endswith("  healthy")]) == 7


class TestWhatAReaderMustKnow:
    @pytest.mark.parametrize(
        ("noted", "line"),
        [
            (replace(STARVED, skipped_lines=3), "Note: 3 lines"),
            (replace(STARVED, notes=("The clock ran back.",)), "Note: The clock ran back."),
        ],
        ids=["skipped lines", "notes"],
    )
    def test_is_said(self, noted: Report, line: str) -> None:
        assert [said for said in shown(noted) if said.startswith(line)] != []
        assert [said for said in shown(STARVED) if said.startswith("Note:")] == []

    @pytest.mark.parametrize("is_simulated", [True, False])
    def test_is_said_that_a_gpu_is_simulated(self, is_simulated: bool) -> None:
        one = replace(STARVED, simulated=is_simulated, source="nvml")

        assert ("simulated" in " ".join(shown(one))) is is_simulated


class TestARunOfBefore:
    def test_is_not_spoken_of_where_it_ended_before_observation_began(self) -> None:
        before = replace(run(), run="yesterday", gpu_uuids=(), alive=False, ended_before=True)
        idle = gpu(20, {UNKNOWN: 40})

        assert shown(report(idle, runs=(before,))) == shown(report(idle))
        assert shown(report(runs=(before,))) == shown(report())


class TestTheTerminal:
    def test_gets_no_colour_where_it_is_none(self) -> None:
        assert style_for(io.StringIO(), {}) == TextStyle(colour=False, unicode=False)

    @pytest.mark.parametrize(
        ("environ", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
    )
    def test_gets_colour_where_it_wants_it(self, environ: dict[str, str], colour: bool) -> None:
        class Terminal(io.TextIOWrapper):
            def isatty(self) -> bool:
                return True

        stream = Terminal(io.BytesIO(), encoding="utf-8")

        assert style_for(stream, environ) == TextStyle(colour=colour, unicode=True)

    def test_gets_red_for_a_high_loss_and_the_same_words(self) -> None:
        painted = render_report(STARVED, TextStyle(colour=True))
        bare = painted
        for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
            bare = bare.replace(code, "")

        assert painted.startswith("\x1b[31mVerdict:")
        assert bare == render_report(STARVED, PLAIN)

    def test_gets_ascii_where_it_knows_no_more(self) -> None:
        text = render_report(replace(STARVED, source="Gerät.csv"), TextStyle(unicode=False))

        assert text.isascii()
        assert "<-" in text
        assert "####" in text

    @given(
        st.lists(
            st.dictionaries(st.sampled_from(CAUSES), st.floats(0.001, 9e6), max_size=12),
            max_size=6,
        ),
        st.booleans(),
    )
    def test_is_never_wider_than_80_columns(
        self, idle: list[dict[IdleCause, float]], unicode: bool
    ) -> None:
        one = report(*(gpu(9e6, causes, index=index) for index, causes in enumerate(idle)))

        assert max(len(line) for line in shown(one, TextStyle(unicode=unicode))) <= 80
