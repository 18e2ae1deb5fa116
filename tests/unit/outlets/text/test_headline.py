"""Specification of the report's first three lines: how bad it is, why, and what to do next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.time.totals import GapTotals
from gpumon.outlets.text.report_text import render_report
from tests.builders_report import gpu, report, run
from tests.builders_time import s
from tests.unit.outlets.report_lines import PLAIN, STARVED, line_with, shown

UNKNOWN, SAVE = IdleCause.UNKNOWN, IdleCause.CHECKPOINT


def headline(one: Report) -> str:
    """The three lines, unwrapped."""
    return " ".join(render_report(one, PLAIN).split("\n\n")[0].split())


def first_batch(one: GpuReport, waited_s: float) -> GpuReport:
    """The GPU, so much of whose wait for input was for a training's very first batch."""
    totals = one.totals._replace(first_input_wait_ns=s(waited_s))
    return replace(one, totals=totals, verdict=judge(totals))


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
        assert "20.0 s of it in 9 pauses" in text
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
        assert "8.0 s of it during checkpoints. No tag explains 9.0 s more: put" in save

    def test_do_not_pretend_to_know(self) -> None:
        text = headline(report(gpu(20, {IdleCause.UNKNOWN: 40})))

        assert "nothing tells why" in text
        assert "Utilisation alone cannot tell" in text

    def test_do_not_deny_the_pauses_that_are_suspected_beside_a_greater_loss(self) -> None:
        one = gpu(20, {UNKNOWN: 40}, suspected_s=2)
        pauses = GapTotals(count=4, total_ns=s(2), longest_ns=s(0.9), p50_ns=s(0.5))

        text = headline(report(replace(one, totals=one.totals._replace(pauses=pauses))))

        assert "Partial (high loss): GPU 0 is idle 67 % of its time in use" in text
        assert "2.0 s of it in 4 pauses, the longest 0.9 s; the rest in no pattern." in text

    @pytest.mark.parametrize(("longest_ns", "is_named"), [(0, False), (1, True)])
    def test_name_the_longest_pause_where_one_has_ended(
        self, longest_ns: int, *, is_named: bool
    ) -> None:
        one = gpu(20, {UNKNOWN: 40}, suspected_s=2)
        pauses = GapTotals(count=4, total_ns=s(2), longest_ns=longest_ns, p50_ns=s(0.5))

        text = headline(report(replace(one, totals=one.totals._replace(pauses=pauses))))

        assert ("in 4 pauses, the longest" in text) is is_named

    def test_do_not_deny_pauses_that_are_too_few_for_a_suspicion(self) -> None:
        text = headline(report(gpu(20, {UNKNOWN: 40}, pauses=2)))

        assert "Partial (moderate loss): GPU 0 loses 67 % of its time in 2 pauses of 20 s" in text
        assert "40.0 s of it in 2 pauses, the longest 40.0 s. Next: 2 pauses are too few" in text

    def test_tell_pauses_without_a_rhythm_from_the_others_they_are_counted_with(self) -> None:
        one = gpu(60, {UNKNOWN: 40}, suspected_s=30, pauses=20)
        mixed = replace(one, totals=one.totals._replace(irregular_ns=s(10)))

        text = headline(report(mixed))

        assert "40.0 s of it in 20 pauses, the longest 4.0 s; 10.0 s of that without a" in text

    def test_pass_over_a_moment_without_a_rhythm(self) -> None:
        one = gpu(60, {UNKNOWN: 40}, suspected_s=39.1, pauses=20)

        text = headline(report(replace(one, totals=one.totals._replace(irregular_ns=s(0.9)))))

        assert "40.0 s of it in 20 pauses, the longest 4.0 s. Next" in text

    def test_say_that_tags_explain_too_little_where_they_explain_some(self) -> None:
        text = headline(report(gpu(40, {IdleCause.UNKNOWN: 57, IdleCause.INPUT_WAIT: 3})))

        assert "idle 60 % of its time in use, and tags explain too little of it" in text

    def test_keep_what_is_proved_and_name_what_is_not_explained_beside_it(self) -> None:
        text = headline(report(gpu(20, {IdleCause.UNKNOWN: 25, IdleCause.INPUT_WAIT: 18})))

        assert "Starved (high loss): GPU 0 waits for input 29 % of its time in use." in text
        assert "prove it. No tag explains 25.0 s more: put `phase(...)` around what" in text
        assert "Next: Prepare the next batches while the GPU computes" in text

    @pytest.mark.parametrize(("explained_s", "words"), [(89.7, "89.7 %"), (89.9996, "89.9996 %")])
    def test_never_round_what_is_explained_up_to_what_is_asked_for(
        self, explained_s: float, words: str
    ) -> None:
        wait_s = explained_s - 40
        one = report(gpu(40, {IdleCause.UNKNOWN: 60 - wait_s, IdleCause.INPUT_WAIT: wait_s}))

        assert f"coverage {words}" in line_with("sum = observed", one)

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

    def test_do_not_judge_a_gpu_that_was_watched_for_a_moment(self) -> None:
        text = headline(report(gpu(0, {IdleCause.NOT_IN_USE: 3}), gpu(0, {}, index=1)))

        assert "Too short to judge: GPU 0 and GPU 1 were watched for less than 10 s." in text
        assert "A verdict takes 10.0 s in use: watch GPU 0 and GPU 1 for longer" in text
        assert "nothing to do" not in text

    def test_do_not_judge_a_gpu_that_worked_for_a_moment(self) -> None:
        text = headline(report(gpu(1, {IdleCause.NOT_IN_USE: 5})))

        assert "Too short to judge: GPU 0 was in use for less than 10 s." in text
        assert "it was in use for 1.0 s of 6.0 s" in text.lower()
        assert "A verdict takes 10.0 s in use: watch GPU 0 for longer" in text

    def test_say_what_was_proved_of_a_gpu_that_worked_for_a_moment(self) -> None:
        short = headline(report(gpu(5, {IdleCause.INPUT_WAIT: 3})))
        rare = headline(report(gpu(5, {IdleCause.INPUT_WAIT: 3, IdleCause.NOT_IN_USE: 92})))

        assert "Too short to judge: " in short
        assert "Not in use: GPU 0 was in use for less than 10 s." in rare
        for text in (short, rare):
            assert "3.0 s of it waiting for input: its tags prove that much." in " ".join(
                text.split()
            )

    def test_put_no_verdict_down_to_the_wait_for_the_first_batch(self) -> None:
        waits = {IdleCause.INPUT_WAIT: 30, IdleCause.CHECKPOINT: 10}
        text = headline(report(first_batch(gpu(50, waits), 30)))

        assert "GPU 0 is idle 17 % of its time in use, mainly during checkpoints." in text
        assert (
            "It was idle for 40.0 s of 90.0 s in use, 30.0 s of it for the very first batch, "
            "10.0 s of it during checkpoints." in text
        )
        assert "Next: Save less often" in text

    def test_say_why_a_healthy_gpu_was_idle_for_its_first_batch(self) -> None:
        text = headline(report(first_batch(gpu(60, {IdleCause.INPUT_WAIT: 30}), 30)))

        assert "Healthy: GPU 0 works well." in text
        assert "30.0 s of it for the very first batch; the rest in no pattern" in text
        assert "Next: The first batch came late" in text

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
        assert "Next: GPU 1: find out what became of it: `gpumon doctor`, `nvidia-smi -q -i" in text
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

    def test_speak_of_gpus_that_work_before_one_that_worked_for_a_moment(self) -> None:
        works = gpu(1800, index=1)
        unused = gpu(0, {IdleCause.NOT_IN_USE: 1800}, index=2)
        briefly = gpu(6, {IdleCause.UNKNOWN: 3, IdleCause.NOT_IN_USE: 1791})
        short = gpu(6, {IdleCause.UNKNOWN: 2})

        assert "Healthy: GPU 1 works well." in headline(report(briefly, works))
        assert "GPU 0 was in use for less than 10 s." in headline(report(briefly, works))
        text = headline(report(short, works, unused))
        assert "Healthy: GPU 1 works well. GPU 2 was not in use. GPU 0 was in use for less" in text
        assert "Next: Nothing needs to change." in text

    def test_say_of_a_run_on_no_gpu_what_to_say_of_it(self) -> None:
        text = headline(report(runs=(replace(run(), gpu_uuids=()),)))

        assert "Verdict: No GPU: the run train was on none." in text
        assert "Next: Say which GPU it trains on, with GPUMON_GPUS=0" in text

    def test_say_so_where_there_is_no_gpu(self) -> None:
        assert "No gpu was observed" in headline(report()).replace("GPU", "gpu")
