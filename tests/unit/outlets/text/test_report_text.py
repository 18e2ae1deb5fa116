"""Specification of the text report below its headline: where every second went."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import CAUSES, IdleCause, TrainingPhase
from gpumon.core.report.report import Report, RunReport
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle, style_for
from tests.builders_report import gpu, report, run, shared_run
from tests.builders_time import s
from tests.unit.outlets.report_lines import PLAIN, STARVED, line_with, shown

GOLDEN = Path(__file__).resolve().parents[3] / "golden"
UNKNOWN = IdleCause.UNKNOWN


class TestTheGoldenReports:
    @pytest.mark.parametrize(
        ("name", "one"),
        [
            ("report_starved.txt", STARVED),
            (
                "report_two_gpus.txt",
                replace(
                    report(
                        gpu(30, {IdleCause.UNKNOWN: 30}, suspected_s=30, pauses=20),
                        gpu(58.2, {IdleCause.UNKNOWN: 1.8}, index=1),
                    ),
                    skipped_lines=3,
                    notes=("The log has no time stamps: 1 s a row (assumed).",),
                ),
            ),
        ],
    )
    def test_are_the_golden_files_to_the_byte(self, name: str, one: Report) -> None:
        text = render_report(one, PLAIN)
        if os.environ.get("GPUMON_UPDATE_GOLDEN"):
            (GOLDEN / name).write_text(text, encoding="utf-8")

        assert text == (GOLDEN / name).read_text(encoding="utf-8"), "run: make golden"


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
        text = render_report(replace(STARVED, started_at=started_at), PLAIN)

        assert said in " ".join(text.split())


class TestTheOverviewOfManyGpus:
    def test_keeps_its_columns_apart_where_a_share_is_next_to_a_limit(self) -> None:
        near = gpu(9_500.1, {UNKNOWN: 499.9})
        row = line_with(
            "10,000.0 s    95 %", report(near, *(gpu(50, index=at) for at in range(1, 6)))
        )

        assert row.split() == ["0", "10,000.0", "s", "95", "%", "4.999", "%", "0", "%", "healthy"]
        assert len(row) <= 80

    def test_calls_no_gpu_unused_that_has_just_begun_to_work(self) -> None:
        new, idle = gpu(4), replace(gpu(0.0, {IdleCause.NOT_IN_USE: 40}), index=1)
        many = [replace(gpu(50), index=at) for at in range(2, 7)]
        rows = shown(report(new, idle, *many))

        assert next(row for row in rows if row.startswith("0 ")).endswith("too short to judge")
        assert next(row for row in rows if row.startswith("1 ")).endswith("not in use")


class TestTheTable:
    def test_marks_the_main_cause_and_nothing_else(self) -> None:
        marked = [line for line in shown(STARVED) if "◀" in line]

        assert len(marked) == 1
        assert "waiting for input" in marked[0]

    def test_says_what_its_shares_are_of(self) -> None:
        lines = shown(STARVED)

        at = lines.index("  of the 64.0 s observed:")
        assert lines[at - 1] == "GPU 0, NVIDIA A40: in use for 59.8 s"
        assert "55.3 %" in lines[at + 1]

    def test_marks_nothing_on_a_healthy_gpu(self) -> None:
        assert "◀" not in render_report(report(gpu(98, {IdleCause.UNKNOWN: 2})), PLAIN)

    def test_ends_with_the_sum_and_the_coverage(self) -> None:
        line = line_with("sum = observed", STARVED)

        assert " ".join(line.split()) == "sum = observed 64.0 s 100.0 % coverage 100 %"

    def test_puts_the_greatest_loss_first_and_time_out_of_use_last(self) -> None:
        causes = [line for line in shown(STARVED) if line.startswith("  idle, ")]

        assert [cause.split("  ")[1] for cause in causes] == [
            "idle, waiting for input", "idle, during checkpoints", "idle, not in use"
        ]  # fmt: skip

    def test_leaves_out_what_took_next_to_no_time(self) -> None:
        crumbs = gpu(
            400,
            {IdleCause.INPUT_WAIT: 20, IdleCause.CALLBACKS: 7.4e-05, IdleCause.CHECKPOINT: 0.02},
        )
        totals = crumbs.totals._replace(
            pending_ns=70_000, first_input_wait_ns=70_000, validation_input_wait_ns=s(2)
        )
        text = render_report(report(replace(crumbs, totals=totals)), PLAIN)

        assert "callbacks" not in text
        assert "not decided" not in text
        assert "first batch" not in text
        assert "  0.0 %" not in text
        assert "of it in validation" in text
        assert "during checkpoints" not in text

    def test_keeps_what_took_a_share_of_little_time(self) -> None:
        short = report(gpu(2, {IdleCause.CHECKPOINT: 0.02}))

        assert "0.02 s" in line_with("during checkpoints", short)

    def test_keeps_a_gpus_busy_time_though_it_is_none(self) -> None:
        unused = report(gpu(0, {IdleCause.NOT_IN_USE: 60}))

        assert line_with("busy ", unused).split()[:5] == ["busy", "0.0", "s", "0.0", "%"]

    def test_shows_pending_time_as_such(self) -> None:
        one = gpu(40, {IdleCause.INPUT_WAIT: 20})
        totals = one.totals._replace(pending_ns=s(3), observed_ns=one.totals.observed_ns + s(3))

        text = report(replace(one, totals=totals))

        assert "3.0 s" in line_with("not decided yet", text)
        assert "63.0 s" in line_with("sum = observed", text)

    def test_shows_a_hidden_wait_as_hidden(self) -> None:
        text = " ".join(render_report(STARVED, PLAIN).split())

        assert "waited 7.5 s for input while the GPU was busy: hidden, nothing to gain" in text

    def test_leaves_out_a_hidden_wait_that_is_next_to_nothing(self) -> None:
        one = report(gpu(40, {IdleCause.INPUT_WAIT: 20}, hidden_s=0.01))

        assert "hidden" not in render_report(one, PLAIN)

    def test_of_many_gpus_is_one_line_each_and_one_table_for_the_worst(self) -> None:
        many = [gpu(60, index=index) for index in range(8)]
        many[5] = gpu(40, {IdleCause.INPUT_WAIT: 20}, index=5)

        text = render_report(report(*many), PLAIN)

        assert text.count("sum = observed") == 1
        assert "busy: share of the time observed; lost and starved: of the time in use" in text
        assert "GPU 5, NVIDIA A40: in use" in text
        assert len([line for line in text.splitlines() if line.endswith("  healthy")]) == 7


class TestWhatAReaderMustKnow:
    def test_is_said_skipped_lines_and_notes_alike(self) -> None:
        noted = replace(STARVED, skipped_lines=3, notes=("The clock ran back.",))

        assert "Note: 3 lines were not used." in shown(noted)
        assert "Note: The clock ran back." in shown(noted)

    def test_is_said_that_a_gpu_is_simulated(self) -> None:
        assert "simulated." in " ".join(shown(STARVED))
        assert "is simulated" not in " ".join(shown(replace(STARVED, simulated=False)))

    def test_is_said_of_a_second_loss_too(self) -> None:
        assert "After that:" in shown(STARVED)


class TestTheStepsOfARun:
    def text(self, step_s: float | None) -> str:
        one = replace(run(steps=10, wall_s=300), step_ns=None if step_s is None else s(step_s))
        return " ".join(render_report(report(gpu(40), runs=(one,)), PLAIN).split())

    def test_take_the_median_and_not_a_share_of_start_up(self) -> None:
        assert "10 steps in 300.0 s, median 20.0 ms a step." in self.text(0.02)

    def test_are_shown_finer_where_they_are_short(self) -> None:
        assert "0.05 ms a step" in self.text(0.00005)
        assert "0.0025 ms a step" in self.text(0.0000025)

    def test_have_no_length_where_none_was_seen(self) -> None:
        assert "10 steps in 300.0 s." in self.text(None)


class TestARunOnSeveralGpus:
    def text(self, one: RunReport) -> str:
        shown = report(gpu(40), gpu(60, index=1), runs=(one,))
        return " ".join(render_report(shown, PLAIN).split())

    def test_is_shown_with_its_shares_its_skew_and_the_ratios_that_level_it(self) -> None:
        one = shared_run([2 / 3, 1.0], shares=[0.5, 0.5])
        text = self.text(replace(one, ratio_changes=3))

        assert "Of each batch, GPU 0 50 % and GPU 1 50 %, after 3 changes." in text
        assert "In training steps GPU 0 67 % and GPU 1 100 % busy: skew 33 %, level at 3:2" in text

    def test_that_is_level_is_shown_with_its_skew_alone(self) -> None:
        text = self.text(shared_run([0.99, 1.0], shares=[0.6, 0.4]))

        assert "Of each batch, GPU 0 60 % and GPU 1 40 %." in text
        assert "skew 1.0 %" in text
        assert "level at" not in text

    def test_is_shown_without_ratios_where_its_shares_are_not_known(self) -> None:
        text = self.text(shared_run([2 / 3, 1.0], framework="loop"))

        assert "skew 33 %" in text
        assert "level at" not in text
        assert "Of each batch" not in text


class TestTheCallbacksOfARun:
    def text(self, callbacks_s: float) -> str:
        one = run(wall_s=60)
        phases = {**one.phase_ns, TrainingPhase.CALLBACKS: s(callbacks_s)}
        one = replace(one, phase_ns=phases, callback_ns={"TensorBoard": s(callbacks_s)})
        return " ".join(render_report(report(gpu(40), runs=(one,)), PLAIN).split())

    def test_are_named_where_they_took_a_share_of_it(self) -> None:
        assert "In its callbacks: TensorBoard 1.2 s." in self.text(1.2)

    def test_are_not_where_they_did_not(self) -> None:
        assert "TensorBoard" not in self.text(0.3)


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


def test_a_run_that_is_on_no_gpu_is_said_to_be() -> None:
    adrift = replace(run(), gpu_uuids=())

    text = " ".join(shown(report(gpu(20, {IdleCause.UNKNOWN: 40}), runs=(adrift,))))

    assert "It is joined to no GPU so far." in " ".join(text.split())


class TestARunThatHasEnded:
    ADRIFT = replace(run(), gpu_uuids=(), alive=False)

    def test_was_on_no_gpu_and_is_not_said_to_be_on_none_so_far(self) -> None:
        text = " ".join(" ".join(shown(report(gpu(60, {}), runs=(self.ADRIFT,)))).split())

        assert "It was joined to no GPU." in text
        assert "so far" not in text

    def test_is_not_spoken_of_where_it_ended_before_observation_began(self) -> None:
        before = replace(self.ADRIFT, run="yesterday", ended_before=True)
        idle = gpu(20, {IdleCause.UNKNOWN: 40})

        assert shown(report(idle, runs=(before,))) == shown(report(idle))
        assert shown(report(runs=(before,))) == shown(report())
