"""Specification of advice where no tag says why a GPU was idle, and where one had no work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.advice import advise
from gpumon.core.phase import IdleCause, TrainingPhase
from tests.builders_report import gpu, run
from tests.builders_time import s

WAIT, UNKNOWN = IdleCause.INPUT_WAIT, IdleCause.UNKNOWN


class TestUnknownIdleTime:
    def test_that_comes_in_bursts_is_to_be_tagged_and_fed_faster(self) -> None:
        one = gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=10)

        (found,) = advise([one], ())

        assert "PhaseTagger()" in found.text
        assert "prefetch" in found.text
        assert "GPU 0 paused 10 times, median 2.0 s, longest 4.0 s." in found.evidence

    def test_without_a_pattern_is_to_be_tagged_before_anything_is_changed(self) -> None:
        (found,) = advise([gpu(20, {UNKNOWN: 40})], ())

        assert found.text.startswith("Utilisation alone cannot tell")
        assert "PhaseTagger()" in found.text

    def test_beside_a_tagged_run_asks_for_the_missing_tags(self) -> None:
        (found,) = advise([gpu(20, {UNKNOWN: 40})], [run()])

        assert "none of its phases covers" in found.text

    @pytest.mark.parametrize(
        ("phases", "asked"),
        [
            (
                (),
                ["its wait for input with `for batch in", 'its step with `with phase("'],
            ),
            ((TrainingPhase.INPUT_WAIT,), ['time: its step with `with phase("train_step")`.']),
            ((TrainingPhase.TRAIN_STEP,), ["time: its wait for input with `for batch in timed("]),
            ((TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP), ["`phase(...)` around it"]),
        ],
        ids=["neither", "no step", "no wait", "something else"],
    )
    def test_of_a_loop_of_ones_own_asks_for_the_tags_it_lacks(
        self, phases: tuple[TrainingPhase, ...], asked: list[str]
    ) -> None:
        spent_ns = {TrainingPhase.OTHER: s(40), **dict.fromkeys(phases, s(5))}
        loop = replace(run(), framework="loop", phase_ns=spent_ns)

        (found,) = advise([gpu(20, {UNKNOWN: 40})], [loop])

        assert [words for words in asked if words not in found.text] == []

    def test_of_before_a_tagged_run_is_not_laid_at_its_door(self) -> None:
        short = run(wall_s=10)

        (found,) = advise([gpu(60, {UNKNOWN: 60})], [short])

        assert found.text == (
            "Most of this is not the time of the runs in this report: tag whatever else uses "
            "GPU 0, too."
        )

    def test_of_a_tagged_run_is_its_own_though_others_were_there(self) -> None:
        untagged = {TrainingPhase.TRAIN_STEP: s(5), TrainingPhase.OTHER: s(35)}
        half = replace(run(wall_s=40), phase_ns=untagged)

        (found,) = advise([gpu(40, {UNKNOWN: 60})], [half])

        assert "none of its phases covers" in found.text

    def test_of_a_trainer_is_looked_for_at_the_ends_of_its_script(self) -> None:
        letting_go = {TrainingPhase.TRAIN_STEP: s(20), TrainingPhase.OTHER: s(40)}
        keras = replace(run(), phase_ns=letting_go)
        one = gpu(20, {UNKNOWN: 40})

        (of_keras,) = advise([one], [keras])
        (of_a_loop,) = advise([one], [replace(keras, framework="loop")])

        assert "mostly before and after the training: in the script, or while" in of_keras.text
        assert "before and after" not in of_a_loop.text

    def test_is_not_laid_at_the_door_of_a_run_that_was_on_no_gpu(self) -> None:
        elsewhere = replace(run(wall_s=50), run="elsewhere", gpu_uuids=())

        (found,) = advise([gpu(30, {UNKNOWN: 30})], [run(wall_s=10), elsewhere])

        assert "Most of this is not the time of the runs in this report" in found.text

    def test_beside_a_run_that_is_on_no_gpu_asks_which_it_trains_on(self) -> None:
        (found,) = advise([gpu(20, {UNKNOWN: 40})], [replace(run(), gpu_uuids=())])

        assert found.text.startswith("The run train tags its phases, but is joined to no GPU")
        assert "GPUMON_GPUS=0" in found.text


class TestASpeedUp:
    def test_is_promised_for_ending_short_pauses_that_are_suspected(self) -> None:
        (found,) = advise([gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=8)], ())

        assert found.speedup_upper_bound == 1.5

    @pytest.mark.parametrize("pauses", [3, 7])
    def test_is_not_promised_for_few_pauses(self, pauses: int) -> None:
        (found,) = advise([gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=pauses)], ())

        assert found.speedup_upper_bound is None
        assert "prefetch" not in found.text
        assert "PhaseTagger()" in found.text

    @pytest.mark.parametrize(("seconds", "bound"), [(30, 2.0), (31, None), (22 * 60, None)])
    def test_is_not_promised_for_long_ones(self, seconds: int, bound: float | None) -> None:
        lost_s = 10 * seconds

        (found,) = advise([gpu(lost_s, {UNKNOWN: lost_s}, suspected_s=lost_s, pauses=10)], ())

        assert found.speedup_upper_bound == bound
        assert ("prefetch" in found.text) is (bound is not None)

    def test_is_not_promised_for_a_level_or_for_pauses_without_a_rhythm(self) -> None:
        level, cells = gpu(20, {UNKNOWN: 40}), gpu(40, {UNKNOWN: 20}, suspected_s=5, pauses=99)
        cells = replace(cells, totals=cells.totals._replace(irregular_ns=s(15)))

        for one in (level, cells):
            assert [found.speedup_upper_bound for found in advise([one], ())] == [None]

    def test_of_several_gpus_is_that_of_those_it_is_promised_for(self) -> None:
        few = gpu(10, {UNKNOWN: 90}, suspected_s=90, pauses=3)
        many = gpu(40, {UNKNOWN: 20}, suspected_s=20, pauses=20, index=1)

        (found,) = advise([few, many], ())

        assert found.speedup_upper_bound == 1.5

    def test_that_is_not_promised_leaves_to_look_at_the_pauses_of_the_gpu_that_lost_most(
        self,
    ) -> None:
        little = gpu(10, {UNKNOWN: 30}, suspected_s=30, pauses=4)
        much = gpu(10, {UNKNOWN: 600}, suspected_s=600, pauses=6, index=1)

        (found,) = advise([little, much], ())

        assert found.text.startswith("Pauses of 100 s can be many things")

    def test_is_promised_for_what_tags_prove_however_few_and_long_its_pauses(self) -> None:
        (found,) = advise([gpu(600, {WAIT: 600}, pauses=3)], ())

        assert found.speedup_upper_bound == 2.0


class TestAGpuWithoutWork:
    @pytest.mark.parametrize(
        ("used_s", "evidence"),
        [((0,), "GPU 0: never in use in 600.0 s observed."),
         ((4,), "GPU 0: in use for 4.0 s of 604.0 s observed."),
         ((4, 2), "GPU 0 and GPU 1: in use for at most 4.0 s of 604.0 s observed.")],
    )  # fmt: skip
    def test_tells_how_long_gpus_that_nobody_needs_were_used(
        self, used_s: tuple[float, ...], evidence: str
    ) -> None:
        gpus = [gpu(s, {IdleCause.NOT_IN_USE: 600}, index=at) for at, s in enumerate(used_s)]

        assert [advice.evidence for advice in advise(gpus, ())] == [evidence]

    def test_is_advised_on_last_and_loses_nothing(self) -> None:
        unused = gpu(0, {IdleCause.NOT_IN_USE: 600}, index=1)

        found = advise([unused, gpu(40, {WAIT: 20})], ())

        assert [advice.cause for advice in found] == ["input_wait", "not_in_use"]
        assert found[1].lost_seconds == 0.0
        assert found[1].speedup_upper_bound == 1.0
        assert "GPU 1" in found[1].text
