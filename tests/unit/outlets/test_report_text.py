"""Specification of the text report: three lines that say it all, then where every second went."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import CAUSES, IdleCause, TrainingPhase
from gpumon.core.report import Report, RunReport
from gpumon.outlets.report_text import render_report
from gpumon.outlets.text_style import TextStyle, style_for
from tests.builders_report import gpu, report, run, shared_run
from tests.builders_time import s

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
PLAIN = TextStyle()
UNKNOWN, SAVE = IdleCause.UNKNOWN, IdleCause.CHECKPOINT

STARVED = report(
    gpu(
        35.4,
        {IdleCause.INPUT_WAIT: 22.1, IdleCause.CHECKPOINT: 2.3, IdleCause.NOT_IN_USE: 4.2},
        hidden_s=7.5,
        pauses=12,
    ),
    runs=(run(steps=1200, wall_s=61.5, workers=1),),
)


def shown(one: Report, style: TextStyle = PLAIN) -> list[str]:
    return render_report(one, style).splitlines()


def line_with(word: str, one: Report, style: TextStyle = PLAIN) -> str:
    (line,) = [line for line in shown(one, style) if word in line]
    return line


def headline(one: Report) -> str:
    """The three lines, unwrapped."""
    return " ".join(render_report(one, PLAIN).split("\n\n")[0].split())


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


class TestTheThreeLines:
    def test_come_first_and_in_this_order(self) -> None:
        words = [line.split()[0] for line in shown(STARVED) if line.split() and line[0] != " "]

        assert words[:3] == ["Verdict:", "Why:", "Next:"]

    def test_name_a_proved_wait_for_input_and_the_loaders_own_fault(self) -> None:
        text = headline(STARVED)

        assert "Starved (high loss): GPU 0 waits for input 37 % of its time in use." in text
        assert "22.1 s of it waiting for input: the training's own tags prove it." in text
        assert "workers=1: raise it" in text
        assert "At most 1.59 times as fast." in text

    def test_name_another_proved_cause(self) -> None:
        text = headline(report(gpu(40, {IdleCause.CHECKPOINT: 20})))

        assert "Stalled (high loss): GPU 0 is idle 33 % of its time in use" in text
        assert "mainly during checkpoints" in text
        assert "Next: Save less often" in text

    def test_call_a_suspicion_a_suspicion(self) -> None:
        text = headline(report(gpu(40, {IdleCause.UNKNOWN: 20}, suspected_s=18, pauses=9)))

        assert "Starvation suspected (high loss)" in text
        assert "18.0 s of it in 9 pauses" in text
        assert "callbacks=[PhaseTagger()] in Keras, Lightning or a Hugging Face Trainer" in text

    def test_say_of_a_wait_what_is_proved_and_no_suspicion(self) -> None:
        one = gpu(80, {IdleCause.INPUT_WAIT: 12, UNKNOWN: 8}, suspected_s=8, pauses=9)

        assert "GPU 0 waits for input 12 % of its time in use." in headline(report(one))

    def test_name_the_greatest_loss_too_where_the_next_step_is_on_that(self) -> None:
        wait = headline(report(gpu(40, {IdleCause.INPUT_WAIT: 15, SAVE: 20})))
        save = headline(report(gpu(83, {UNKNOWN: 9, SAVE: 8})))

        assert "tags prove it. The greatest part, 20.0 s, was during checkpoints." in wait
        assert "Next: Save less often" in wait
        assert "idle 17 % of its time in use, in part during checkpoints." in save
        assert "The greatest part, 9.0 s, was cause unknown." in save

    def test_do_not_pretend_to_know(self) -> None:
        text = headline(report(gpu(20, {IdleCause.UNKNOWN: 40})))

        assert "nothing tells why" in text
        assert "Utilisation alone cannot tell" in text

    def test_say_that_tags_explain_too_little_where_they_explain_some(self) -> None:
        text = headline(report(gpu(40, {IdleCause.UNKNOWN: 15, IdleCause.INPUT_WAIT: 45})))

        assert "idle 60 % of its time in use, and tags explain too little of it" in text
        assert "85 % of its time in use is explained: from 90 % on a cause is named" in text

    @pytest.mark.parametrize(
        ("explained_s", "words"),
        [(89.7, "89.7 % of its time in use is"), (89.9996, "89.9996 % of its time in use is")],
    )
    def test_never_round_what_is_explained_up_to_what_is_asked_for(
        self, explained_s: float, words: str
    ) -> None:
        wait_s = explained_s - 40
        one = report(gpu(40, {IdleCause.UNKNOWN: 60 - wait_s, IdleCause.INPUT_WAIT: wait_s}))

        assert f"{words} explained: from 90 % on a cause is named" in headline(one)
        assert f"coverage {words.split()[0]} %" in line_with("sum = observed", one)

    def test_never_round_a_loss_to_a_share_that_it_does_not_reach(self) -> None:
        assert "idle 19.8 % of its time in use" in headline(report(gpu(80.2, {SAVE: 19.8})))
        assert "(4.97 %), in no pattern" in headline(report(gpu(95.03, {UNKNOWN: 4.97})))

    def test_leave_a_healthy_gpu_alone(self) -> None:
        text = headline(report(gpu(98, {IdleCause.UNKNOWN: 2})))

        assert "Healthy: GPU 0 works well." in text
        assert "Next: Nothing needs to change." in text

    def test_speak_of_an_unused_gpu_without_a_loss(self) -> None:
        text = headline(report(gpu(0, {IdleCause.NOT_IN_USE: 60})))

        assert "Not in use: GPU 0 had nothing to do." in text
        assert "give it back" in text

    def test_do_not_judge_a_gpu_that_worked_for_a_moment(self) -> None:
        text = headline(report(gpu(1, {IdleCause.NOT_IN_USE: 59})))

        assert "Too short to judge: GPU 0 was in use for less than 10 s." in text
        assert "it was in use for 1.0 s of 60.0 s" in text.lower()
        assert "A verdict takes 10.0 s in use: watch GPU 0 for longer" in text

    def test_do_not_ask_to_watch_a_training_that_is_over(self) -> None:
        one = gpu(3, {IdleCause.NOT_IN_USE: 7})

        over = headline(report(one, runs=(replace(run(), alive=False),)))
        going_on = headline(report(one, runs=(replace(run(), alive=True),)))

        assert "watch" not in over
        assert "Next: The training is over: let the next one run for more than 10.0 s" in over
        assert "watch GPU 0 for longer" in going_on

    def test_ask_for_more_work_only_where_the_training_was(self) -> None:
        used, idle = gpu(3, {IdleCause.NOT_IN_USE: 7}), gpu(0, {IdleCause.NOT_IN_USE: 10}, index=1)

        text = headline(report(used, idle, runs=(replace(run(), alive=False),)))

        assert "of work on GPU 0 (more steps or epochs), and ask again." in text
        assert "Give GPU 1 work, or give it back." in text

    def test_do_not_tell_anyone_to_give_a_lost_gpu_back(self) -> None:
        lost = replace(gpu(3, index=1), error="GPU is lost")

        text = headline(report(gpu(600), lost))

        assert "Verdict: GPU lost: GPU 1 cannot be read. GPU 0 works well." in text
        assert "Next: Find out what became of it: `gpumon doctor`, `nvidia-smi -q -i 1`" in text
        assert "give it back" not in text

    def test_name_the_worst_gpu_and_mention_the_others(self) -> None:
        text = headline(
            report(
                gpu(58, {IdleCause.UNKNOWN: 2}, index=0),
                gpu(40, {IdleCause.INPUT_WAIT: 20}, index=1),
                gpu(50, {IdleCause.CHECKPOINT: 10}, index=2),
            )
        )

        assert "GPU 1 waits for input" in text
        assert "GPU 2 loses time too." in text
        assert "GPU 0 is healthy." in text

    def test_say_of_a_run_on_no_gpu_what_to_say_of_it(self) -> None:
        text = headline(report(runs=(replace(run(), gpu_uuids=()),)))

        assert "Verdict: No GPU: the run train was on none." in text
        assert "Next: Say which GPU it trains on, with GPUMON_GPUS=0" in text

    def test_say_so_where_there_is_no_gpu(self) -> None:
        assert "No gpu was observed" in headline(report()).replace("GPU", "gpu")


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
