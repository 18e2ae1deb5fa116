"""Specification of advice: the greatest loss first, what it rests on, and the most it can gain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.judge.advice import WORD_OF_CAUSE, advise
from gpumon.core.judge.advice_texts import start_up_text
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import CAUSES, IdleCause, TrainingPhase
from gpumon.core.report.report import GpuReport, RunReport
from tests.builders_report import gpu, run, shared_run
from tests.builders_time import s

WAIT, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN


def reasoned(one: GpuReport, **seconds: float) -> GpuReport:
    reasons = {reason: s(amount) for reason, amount in seconds.items()}
    return replace(one, totals=one.totals._replace(input_wait_by_reason_ns=reasons))


class TestTheOrder:
    def test_is_by_lost_seconds(self) -> None:
        one = gpu(40, {IdleCause.CHECKPOINT: 5, WAIT: 20, IdleCause.VALIDATION: 8})

        found = advise([one], ())

        assert [advice.cause for advice in found] == ["input_wait", "validation", "checkpoint"]
        assert [advice.lost_seconds for advice in found] == [20, 8, 5]

    def test_adds_up_the_gpus(self) -> None:
        found = advise([gpu(40, {WAIT: 20}), gpu(50, {WAIT: 10}, index=1)], ())

        assert found[0].lost_seconds == 30
        assert "GPU 0 for 20.0 s of 60.0 s in use (33 %)" in found[0].evidence
        assert "GPU 1 for 10.0 s of 60.0 s in use (17 %)" in found[0].evidence


class TestWhomItIsFor:
    def test_is_every_gpu_that_would_gain_and_no_other(self) -> None:
        saving = gpu(40, {WAIT: 20, IdleCause.CHECKPOINT: 5})
        waiting, idle = gpu(50, {WAIT: 10}, index=2), gpu(0, {IdleCause.NOT_IN_USE: 60}, index=3)

        found = advise([saving, gpu(60, {}, index=1), waiting, idle], ())

        assert {advice.cause: advice.gpus for advice in found} == {
            "input_wait": ("0", "2"), "checkpoint": ("0",), "not_in_use": ("3",),
        }  # fmt: skip


class TestTheGain:
    def test_is_the_time_in_use_over_what_is_left_of_it(self) -> None:
        assert advise([gpu(30, {WAIT: 30})], ())[0].speedup_upper_bound == 2.0

    def test_counts_no_time_out_of_use(self) -> None:
        one = gpu(30, {WAIT: 30, IdleCause.NOT_IN_USE: 1000})

        assert advise([one], ())[0].speedup_upper_bound == 2.0

    def test_bounds_every_gpu_also_the_one_that_lost_most(self) -> None:
        starved, fine = gpu(30, {WAIT: 30}), gpu(50, {WAIT: 10}, index=1)

        assert advise([fine, starved], ())[0].speedup_upper_bound == 2.0

    def test_of_a_shorter_start_up_counts_from_the_start(self) -> None:
        one = gpu(40, {WAIT: 20, IdleCause.START_UP: 60})

        assert "60.0 s of 120.0 s of start-up and use (50 %)" in advise([one], ())[0].evidence
        assert advise([one], ())[0].cause == "start_up"
        assert advise([one], ())[0].speedup_upper_bound == 2.0


class TestNoAdviceIsGiven:
    def test_to_a_healthy_gpu(self) -> None:
        assert advise([gpu(97, {WAIT: 3})], ()) == ()

    def test_on_a_loader_whose_wait_is_hidden(self) -> None:
        one = gpu(50, {IdleCause.CHECKPOINT: 10, WAIT: 0.3}, hidden_s=12)

        assert [advice.cause for advice in advise([one], ())] == ["checkpoint"]

    def test_on_a_cause_that_costs_next_to_nothing(self) -> None:
        one = gpu(60, {WAIT: 39.5, IdleCause.CALLBACKS: 0.5})

        assert [advice.cause for advice in advise([one], ())] == ["input_wait"]


class TestAnInputWait:
    def test_names_what_was_exposed_and_what_was_hidden(self) -> None:
        found = advise([gpu(40, {WAIT: 20}, hidden_s=12)], ())

        assert "Exposed 20.0 s; another 12.0 s of waiting was hidden" in found[0].evidence

    @pytest.mark.parametrize(
        ("reason", "word"),
        [("cpu_bound", "cores"), ("gil_bound", "processes instead of threads"),
         ("disk_bound", "SSD"), ("network_bound", "local disk"),
         ("memory_pressure", "page cache"), ("latency_bound", "deeper prefetch")],
    )  # fmt: skip
    def test_is_answered_by_what_holds_the_input_up(self, reason: str, word: str) -> None:
        found = advise([reasoned(gpu(40, {WAIT: 20}), **{reason: 15})], ())

        assert word in found[0].text

    def test_is_answered_in_general_where_no_reason_explains_half(self) -> None:
        found = advise([reasoned(gpu(40, {WAIT: 20}), cpu_bound=8, disk_bound=8)], ())

        assert found[0].text.startswith("Prepare the next batches while the GPU computes")

    @pytest.mark.parametrize(
        ("loader", "sentence"),
        [
            ({"workers": 1}, "has workers=1: raise it"),
            ({"workers": 4, "use_multiprocessing": False}, "4 workers of train are threads"),
            ({"prefetch": 0}, "prefetches nothing"),
        ],
    )
    def test_is_answered_by_what_the_loader_really_is(
        self, loader: dict[str, int | bool], sentence: str
    ) -> None:
        assert sentence in advise([gpu(40, {WAIT: 20})], [run(**loader)])[0].text

    def test_is_not_answered_by_the_loader_of_another_gpu(self) -> None:
        other = replace(run(workers=1), gpu_uuids=("GPU-7",))

        assert "workers=1" not in advise([gpu(40, {WAIT: 20})], [other])[0].text

    def test_is_not_told_of_a_hidden_part_that_is_next_to_nothing(self) -> None:
        one = gpu(40, {WAIT: 20}, hidden_s=0.05)

        assert "hidden" not in advise([one], ())[0].evidence


class TestAValidationLoaderThatIsLate:
    def advice(self, in_validation_s: float) -> str:
        one = gpu(50, {WAIT: 50})
        totals = one.totals._replace(validation_input_wait_ns=s(in_validation_s))
        loaded = replace(run(), loader={"workers": 0})
        return advise([replace(one, totals=totals)], [loaded])[0].text

    def test_is_named_and_the_training_loader_is_not(self) -> None:
        text = self.advice(40)

        assert text.startswith("The validation data come late (40.0 s):")
        assert "validation_freq" in text
        assert "workers=0" not in text

    def test_is_named_after_the_training_loader_where_that_is_later(self) -> None:
        text = self.advice(10)

        assert text.index("has workers=0") < text.index("The validation data come late (10.0 s)")

    def test_is_not_named_where_it_is_not(self) -> None:
        assert "validation" not in self.advice(0)


class TestTheFirstBatch:
    def late(self, first_s: float, busy_s: float = 60.0) -> GpuReport:
        one = gpu(busy_s, {WAIT: first_s})
        totals = one.totals._replace(first_input_wait_ns=s(first_s))
        return replace(one, totals=totals, verdict=judge(totals))

    def test_that_came_late_has_an_advice_of_its_own_on_a_healthy_gpu_too(self) -> None:
        (advice,) = advise([self.late(20)], ())

        assert advice.cause == "first_input_wait"
        assert advice.lost_seconds == 20
        assert advice.speedup_upper_bound == pytest.approx(80 / 60)
        assert "GPU 0 for 20.0 s of 80.0 s in use" in advice.evidence
        assert "shuffle buffer" in advice.text

    def test_is_left_out_of_the_advice_on_the_others(self) -> None:
        one = self.late(20)
        totals = one.totals._replace(
            idle_ns={WAIT: s(50)}, in_use_ns=s(110), low_ns=s(50), observed_ns=s(110)
        )

        found = advise([replace(one, totals=totals, verdict=judge(totals))], ())

        assert [(each.cause, each.lost_seconds) for each in found] == [
            ("input_wait", 30),
            ("first_input_wait", 20),
        ]

    def test_that_took_less_than_a_tenth_has_none(self) -> None:
        assert advise([self.late(6)], ()) == ()


class TestTimeBetweenEpochs:
    def advice(self, **loader: Any) -> str:
        one = gpu(50, {IdleCause.BETWEEN_EPOCHS: 50})
        return advise([one], [replace(run(), loader=loader)])[0].text

    def test_is_put_down_to_what_the_data_set_does_there(self) -> None:
        text = self.advice(kind="PyDataset", workers=2, epoch_hooks="on_epoch_end")

        assert text.startswith(f"on_epoch_end of the PyDataset of {run().run} is called between")
        assert "persistent_workers" not in text

    def test_is_put_down_to_workers_that_start_anew_where_they_do(self) -> None:
        assert "persistent_workers" in self.advice(workers=2, persistent_workers=False)
        assert "persistent_workers" not in self.advice(workers=2, persistent_workers=True)
        assert "persistent_workers" not in self.advice(workers=0, persistent_workers=False)

    def test_is_less_in_longer_epochs_whatever_the_loader(self) -> None:
        assert "Make epochs longer" in self.advice(kind="arrays")


class TestAFact:
    def test_about_a_gpus_pauses_stands_with_the_greatest_loss_only(self) -> None:
        one = gpu(40, {WAIT: 12, UNKNOWN: 8, IdleCause.CHECKPOINT: 10}, pauses=10)

        evidence = {advice.cause: advice.evidence for advice in advise([one], ())}

        assert "GPU 0 paused 10 times" in evidence["input_wait"]
        assert "paused" not in evidence["unknown"] + evidence["checkpoint"]

    def test_about_the_pauses_of_another_gpu_stands_beside_it(self) -> None:
        waits, untagged = gpu(40, {WAIT: 20}, pauses=10), gpu(40, {UNKNOWN: 9}, index=1, pauses=5)

        evidence = {advice.cause: advice.evidence for advice in advise([waits, untagged], ())}

        assert "GPU 0 paused 10 times" in evidence["input_wait"]
        assert "GPU 1 paused 5 times" in evidence["unknown"]

    def test_that_the_loaders_of_several_runs_share_is_said_once_for_all(self) -> None:
        runs = [replace(run(workers=1, prefetch=0), run=f"train-r{rank}") for rank in range(3)]

        (found,) = advise([gpu(40, {WAIT: 20})], runs)

        assert found.text == (
            "The loaders of train-r0, train-r1 and train-r2 have workers=1: raise it, towards "
            "the number of CPU cores. The loaders of train-r0, train-r1 and train-r2 prefetch "
            "nothing: let them work one or two batches ahead."
        )

    def test_of_one_loader_is_not_said_of_another(self) -> None:
        runs = [
            replace(run(workers=1), run="a"),
            replace(run(workers=4, use_multiprocessing=False), run="b"),
            replace(run(workers=4, use_multiprocessing=False), run="c"),
        ]

        (found,) = advise([gpu(40, {WAIT: 20})], runs)

        assert "The loader of a has workers=1" in found.text
        assert "The 4 workers of each of b and c are threads" in found.text


class TestSlowCallbacks:
    def slow(self, callbacks_s: float, **spent_s: float) -> RunReport:
        one = run(wall_s=60)
        phases = {**one.phase_ns, TrainingPhase.CALLBACKS: s(callbacks_s)}
        return replace(one, phase_ns=phases, callback_ns={k: s(v) for k, v in spent_s.items()})

    def test_are_named_by_their_classes_the_slowest_first(self) -> None:
        one = self.slow(20, History=0.1, TensorBoard=15, Upload=4)  # History: not worth a word

        (found,) = advise([gpu(40, {IdleCause.CALLBACKS: 20})], [one])

        assert "In train: TensorBoard 15.0 s and Upload 4.0 s." in found.text

    def test_are_not_named_where_they_took_next_to_nothing(self) -> None:
        (found,) = advise([gpu(40, {IdleCause.CALLBACKS: 20})], [self.slow(0.1, History=0.1)])

        assert "History" not in found.text


class TestStartUp:
    @pytest.mark.parametrize(
        ("compiled_s", "idle_s", "said"),
        [
            (16, {}, "Most of it was compiling (16.0 s): turn on the framework's compilation"),
            (10, {}, "Most of it was compiling (10.0 s): turn on the framework's compilation"),
            (6, {}, "Start faster: load the data set lazily"),
            (16, {IdleCause.COMPILE: 12}, "Start faster: load the data set lazily"),
        ],
        ids=["mostly", "half of it", "partly", "mostly later"],
    )
    def test_that_was_spent_compiling_is_to_be_compiled_once(
        self, compiled_s: int, idle_s: dict[IdleCause, float], said: str
    ) -> None:
        one = gpu(40, {IdleCause.START_UP: 20, WAIT: 19, **idle_s})
        compiles = replace(run(), phase_ns={TrainingPhase.COMPILE: s(compiled_s)})

        (found,) = [one for one in advise([one], [compiles]) if one.cause == "start_up"]

        assert said in found.text

    def test_counts_for_no_gpu_that_waited_for_none(self) -> None:
        waited, other = gpu(40, {IdleCause.START_UP: 20}), gpu(40, index=1)
        compiles = replace(run(), phase_ns={TrainingPhase.COMPILE: s(10)})

        assert start_up_text([waited, other], [compiles]).startswith("Most of it was compiling")


class TestEveryCause:
    @pytest.mark.parametrize("cause", [c for c in CAUSES if c is not IdleCause.NOT_IN_USE])
    def test_has_a_rule_that_says_what_to_do(self, cause: IdleCause) -> None:
        one = gpu(40, {cause: 20, WAIT: 20}) if cause is not WAIT else gpu(40, {WAIT: 20})

        found = {advice.cause: advice for advice in advise([one], ())}

        assert WORD_OF_CAUSE[cause] in found[cause.value].evidence
        assert len(found[cause.value].text) > 40


class TestTheStepThatWaits:
    @pytest.mark.parametrize(
        ("framework", "says", "says_not"),
        [
            ("keras/tensorflow", "steps_per_execution", "torch"),
            ("keras/jax", "steps_per_execution", "jit_compile"),
            ("keras/torch", "torch.compile", "steps_per_execution"),
            ("loop", "compile the step", "steps_per_execution"),
        ],
    )
    def test_is_told_what_its_framework_takes(
        self, framework: str, says: str, says_not: str
    ) -> None:
        one = replace(gpu(40, {IdleCause.WITHIN_STEP: 20}), uuid="GPU-0")
        training = replace(run(), framework=framework)

        text = advise([one], [training])[0].text

        assert says in text
        assert says_not not in text

    def test_is_told_nothing_that_a_batch_split_over_gpus_cannot_take(self) -> None:
        one = replace(gpu(40, {IdleCause.WITHIN_STEP: 20}), uuid="GPU-0")

        text = advise([one], [shared_run([0.6, 0.6], [0.5, 0.5])])[0].text

        assert "use a larger batch, and read the loss less often" in text
        assert "jit_compile" not in text
        assert "steps_per_execution" not in text


class TestAGpuThatPausesForAnotherCause:
    def test_has_its_pauses_told_under_no_lesser_one(self) -> None:
        one = gpu(40, {WAIT: 3, IdleCause.CHECKPOINT: 20}, pauses=4)

        advices = advise([one], ())

        assert {advice.cause for advice in advices} == {IdleCause.CHECKPOINT, WAIT}
        assert not [advice for advice in advices if "paused" in advice.evidence]


class TestCallbacksToTakeWorkOutOf:
    def test_are_not_those_that_saved_checkpoints(self) -> None:
        one = gpu(40, {IdleCause.CALLBACKS: 10, IdleCause.CHECKPOINT: 8})
        phase_ns = {TrainingPhase.CALLBACKS: s(10), TrainingPhase.CHECKPOINT: s(8)}
        logs = replace(run(), phase_ns=phase_ns, callback_ns={"SlowLog": s(9)})
        saves = replace(
            run(), run="saves", phase_ns={TrainingPhase.CHECKPOINT: s(8)},
            callback_ns={"Saves": s(8)},
        )  # fmt: skip

        text = advise([one], [logs, saves])[0].text

        assert "SlowLog 9.0 s" in text
        assert "Saves" not in text
