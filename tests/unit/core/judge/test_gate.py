"""Specification of the gate: which GPUs are above a limit, and of which nothing can be said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.gate import Limits, judgement
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport
from tests.builders_report import gpu, report, run
from tests.builders_time import s

WAIT, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN
STARVED_5, LOST_20 = Limits(starved=0.05), Limits(lost=0.20)
IDLE = gpu(0, {IdleCause.NOT_IN_USE: 600}, index=0)
HEALTHY = gpu(60, {WAIT: 1}, index=1)


def with_first_batch(one: GpuReport, wait_s: float) -> GpuReport:
    """The GPU, that much of whose wait for input was for the very first batch."""
    totals = one.totals._replace(first_input_wait_ns=s(wait_s))
    return replace(one, totals=totals, verdict=judge(totals))


class TestALossAboveTheLimit:
    @pytest.mark.parametrize(
        ("cause", "words"),
        [
            (IdleCause.IMBALANCE, "waiting for a slower GPU"),
            (IdleCause.CHECKPOINT, "during checkpoints"),
            (WAIT, "waiting for input"),
            (IdleCause.WITHIN_STEP, "inside the training step"),
        ],
    )
    def test_names_the_gpu_its_share_and_its_main_cause(self, cause: IdleCause, words: str) -> None:
        found = judgement(report(gpu(55, {cause: 44, IdleCause.CALLBACKS: 1})), LOST_20)

        assert found.failures == (
            f"more than 20 % of the time in use is lost: GPU 0 (45 %, mainly {words})",
        )

    def test_is_the_share_that_the_report_calls_lost(self) -> None:
        # Start-up and time out of use are no time in use; the very first batch's wait is.
        one = gpu(50, {WAIT: 20, IdleCause.START_UP: 100, IdleCause.NOT_IN_USE: 100})
        one = with_first_batch(one, 20)

        (sentence,) = judgement(report(one), LOST_20).failures

        assert one.verdict.lost_ratio == pytest.approx(20 / 70)
        assert sentence.endswith("GPU 0 (29 %, mainly waiting for the very first batch)")

    def test_names_every_gpu_above_it_and_no_other(self) -> None:
        gpus = [gpu(50, {WAIT: 50}, index=at) for at in range(8)]

        (sentence,) = judgement(report(*gpus, gpu(90, {WAIT: 10}, index=8)), LOST_20).failures

        assert all(f"GPU {at} (50 %" in sentence for at in range(8))
        assert "GPU 8" not in sentence

    def test_of_which_most_is_unexplained_says_so_and_what_is_proved(self) -> None:
        one = gpu(50, {UNKNOWN: 30, IdleCause.CHECKPOINT: 20})

        (sentence,) = judgement(report(one), LOST_20).failures

        assert sentence.endswith("GPU 0 (50 %: cause unknown, 20 % proved during checkpoints)")

    def test_suspected_to_be_what_a_part_of_it_is_proved_to_be_names_it_once(self) -> None:
        one = gpu(51, {UNKNOWN: 45.4, WAIT: 3.6}, suspected_s=45.4, pauses=9)

        (sentence,) = judgement(report(one), LOST_20).failures

        assert sentence.endswith("GPU 0 (49 %: suspected to wait for input, 3.6 % proved)")

    @pytest.mark.parametrize(
        ("suspected_s", "words"), [(0, "cause unknown"), (30, "suspected to wait for input")]
    )
    def test_of_which_nothing_is_proved_says_so(self, suspected_s: int, words: str) -> None:
        one = gpu(50, {UNKNOWN: 50}, suspected_s=suspected_s, pauses=9)

        (sentence,) = judgement(report(one), LOST_20).failures

        assert sentence.endswith(f"GPU 0 (50 %, {words})")

    @pytest.mark.parametrize("percent", range(1, 100))
    def test_is_none_at_the_very_limit(self, percent: int) -> None:
        one = gpu(100 - percent, {WAIT: percent})

        assert judgement(report(one), Limits(lost=percent / 100)).failures == ()
        assert judgement(report(one), Limits(starved=percent / 100)).failures == ()

    def test_says_the_smallest_limit_in_decimals(self) -> None:
        (sentence,) = judgement(report(gpu(50, {WAIT: 50})), Limits(lost=0.00000005)).failures

        assert sentence.startswith("more than 0.000005 % of")

    def test_and_starvation_are_each_told(self) -> None:
        both = Limits(starved=0.05, lost=0.20)

        assert len(judgement(report(gpu(50, {WAIT: 50})), both).failures) == 2
        assert len(judgement(report(gpu(50, {IdleCause.CHECKPOINT: 50})), both).failures) == 1
        assert len(judgement(report(gpu(90, {WAIT: 10})), both).failures) == 1


class TestNothingToJudge:
    @pytest.mark.parametrize("limits", [STARVED_5, LOST_20], ids=["starved", "lost"])
    def test_is_said_with_the_reason_of_each_gpu(self, limits: Limits) -> None:
        short = gpu(2, {WAIT: 1}, index=1)

        found = judgement(report(IDLE, short), limits)

        assert not found.is_any_judged
        assert found.failures == ()
        assert found.unjudged == "GPU 0 was not in use, GPU 1 was in use for 3.0 s, less than 10 s"

    @pytest.mark.parametrize(
        ("one", "reason"),
        [
            (IDLE, "GPU 0 was not in use"),
            (gpu(0, {IdleCause.NOT_IN_USE: 3}), "GPU 0 was watched for 3.0 s, less than 10 s"),
            (gpu(9.98), "GPU 0 was in use for 9.9 s, less than 10 s"),
            (
                with_first_batch(gpu(3, {WAIT: 60}), 60),
                "GPU 0 was in use for 3.0 s after its first batch, less than 10 s",
            ),
            (gpu(3, {IdleCause.NOT_IN_USE: 600}), "GPU 0 was in use for 3.0 s, less than 10 s"),
            (
                replace(gpu(0), error="the GPU is lost (NVML 15)"),
                "GPU 0 cannot be read: the GPU is lost (NVML 15)",
            ),
            (gpu(0), "GPU 0 was not observed"),
            (replace(gpu(0), mig_index=1), "GPU 0:1 does not tell how busy it is"),
            (
                replace(gpu(0), mig_enabled=True),
                "GPU 0 is cut by MIG, and no instance is made",
            ),
        ],
    )
    def test_has_a_reason_for_each_kind(self, one: GpuReport, reason: str) -> None:
        assert judgement(report(one), STARVED_5).unjudged == reason

    def test_names_gpus_of_one_reason_together(self) -> None:
        gpus = [replace(IDLE, index=at) for at in range(8)]

        unjudged = judgement(report(*gpus), STARVED_5).unjudged

        assert unjudged.startswith("GPU 0, GPU 1, GPU 2, GPU 3 and 4 more were not in use")

    def test_says_that_a_run_was_on_no_gpu(self) -> None:
        nowhere = replace(run(), gpu_uuids=())
        said = "the run train was on no GPU (GPUMON_GPUS names it)"

        assert judgement(report(runs=(nowhere,)), LOST_20).unjudged == said
        assert judgement(report(IDLE, runs=(nowhere,)), LOST_20).unjudged == (
            f"GPU 0 was not in use, {said}"
        )
        assert judgement(
            report(HEALTHY, runs=(nowhere, replace(run(), run="other"))), LOST_20
        ).notes == (f"not judged: {said}",)

    @pytest.mark.parametrize(("label", "pid"), [("train", 12), ("train-12", 12)])
    def test_names_no_run_of_whose_name_another_was_on_a_gpu(self, label: str, pid: int) -> None:
        same, other = (
            replace(run(), run=name, pid=pid, gpu_uuids=()) for name in (label, "another")
        )

        assert judgement(report(HEALTHY, runs=(same, run())), LOST_20).notes == ()
        assert judgement(report(HEALTHY, runs=(same, run(), other, other)), LOST_20).notes == (
            "not judged: the run another was on no GPU (GPUMON_GPUS names it)",
        )

    def test_says_that_there_was_no_gpu(self) -> None:
        assert judgement(report(), LOST_20).unjudged == "no GPU was observed"

    def test_has_no_word_on_a_gpu_whose_instances_are_told_of(self) -> None:
        cut = replace(gpu(0), mig_enabled=True)
        instance = replace(HEALTHY, index=0, mig_index=1, parent_uuid="GPU-0")

        found = judgement(report(cut, instance), STARVED_5)

        assert found.is_any_judged
        assert found.unjudged == ""

    def test_counts_a_proved_loss_of_a_use_too_short_as_nothing(self) -> None:
        assert not judgement(report(gpu(1, {WAIT: 8})), STARVED_5).is_any_judged


class TestOneJudgedAndOthersNot:
    def test_lets_the_judged_one_decide(self) -> None:
        short = gpu(1, {WAIT: 8}, index=2)

        found = judgement(report(IDLE, HEALTHY, short), STARVED_5)

        assert found.is_any_judged
        assert found.failures == ()
        assert found.notes == (
            "not judged: GPU 0 was not in use, GPU 2 was in use for 9.0 s, less than 10 s",
        )


class TestWhatIsNotKnown:
    def test_is_said_where_it_could_be_starvation_above_the_limit(self) -> None:
        flat = gpu(60, {UNKNOWN: 40})

        found = judgement(report(flat), STARVED_5)

        assert found.failures == ()
        assert found.notes == (
            "of GPU 0, 40 % of the time in use has no known cause and may be a wait for input, "
            "too: tag its training's phases to know",
        )

    @pytest.mark.parametrize(
        "one",
        [gpu(96, {UNKNOWN: 4}), gpu(50, {WAIT: 30, UNKNOWN: 20}), gpu(60, {WAIT: 1})],
        ids=["little of it", "above the limit anyway", "none of it"],
    )
    def test_is_not_said_where_it_decides_nothing(self, one: GpuReport) -> None:
        assert judgement(report(one), STARVED_5).notes == ()

    def test_is_not_said_of_what_is_suspected_and_counted(self) -> None:
        suspected = gpu(60, {UNKNOWN: 40}, suspected_s=40, pauses=9)

        assert judgement(report(suspected), Limits(starved=0.5)).notes == ()

    def test_is_not_said_of_a_loss_which_it_is_a_part_of(self) -> None:
        assert judgement(report(gpu(85, {UNKNOWN: 15})), LOST_20).notes == ()


class TestAGpuThatGivesNoAnswerNow:
    def test_is_judged_by_what_was_seen_before_and_that_is_said(self) -> None:
        lost = replace(gpu(60, {WAIT: 60}), error="the GPU is lost (NVML 15)")

        found = judgement(report(lost), STARVED_5)

        assert len(found.failures) == 1
        assert found.notes == (
            "GPU 0 cannot be read now: it is judged by the 120.0 s that were observed",
        )


def test_without_a_limit_nothing_is_held_against_anything() -> None:
    found = judgement(report(gpu(50, {WAIT: 50})), Limits())

    assert (found.failures, found.notes) == ((), ())
