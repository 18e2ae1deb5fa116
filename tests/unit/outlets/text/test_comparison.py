"""Specification of the comparison: what was lost, what was won back, and what was promised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.speedup import speedup
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.outlets.text.comparison import side_by_side
from gpumon.outlets.text.style import TextStyle
from tests.builders_report import gpu, report, run
from tests.builders_time import s

WAIT = IdleCause.INPUT_WAIT
SLOW = report(gpu(30, {WAIT: 30}), runs=(run(steps=500, wall_s=60),))
FAST = report(gpu(30, {WAIT: 1}), runs=(run(steps=500, wall_s=31.25),))


def compared(before: object = SLOW, after: object = FAST) -> str:
    text = side_by_side(before, after, TextStyle())  # type: ignore[arg-type]
    assert max(len(line) for line in text.splitlines()) <= 80
    return " ".join(text.split())


class TestTheTable:
    def test_has_what_was_lost_and_to_what_on_both_sides(self) -> None:
        text = compared()

        assert "in use 60.0 s 31.0 s" in text
        assert "lost 30.0 s 50.0 % 1.0 s 3.2 %" in text
        assert "waiting for input 30.0 s 50.0 % 1.0 s 3.2 % ◀" in text

    def test_has_the_very_time_in_use_that_stands_above_it(self) -> None:
        before, after = (
            report(*(gpu(busy_s, {WAIT: busy_s}, index=at) for at in range(2)))
            for busy_s in (5, 60)
        )

        text = compared(before, after)

        assert "The first was in use for 20.0 s, the second for 240.0 s: compare" in text
        assert "in use 20.0 s 240.0 s" in text

    def test_leaves_out_a_cause_with_next_to_no_time_on_either_side(self) -> None:
        crumb = {WAIT: 30, IdleCause.CALLBACKS: 0.000074}
        before, after = (report(gpu(busy_s, crumb)) for busy_s in (100, 120))

        assert "callbacks" not in compared(before, after)

    def test_has_the_time_of_a_step(self) -> None:
        assert "wall time a step 120.0 ms 62.5 ms" in compared()

    def test_shows_a_cause_that_only_one_side_has(self) -> None:
        after = report(gpu(30, {IdleCause.CHECKPOINT: 4}))

        assert "during checkpoints 0.0 s 0.0 % 4.0 s 11.8 %" in compared(after=after)

    def test_counts_no_step_of_a_run_that_had_ended_before(self) -> None:
        before = replace(run(steps=9_000, wall_s=10), ended_before=True)
        after = replace(FAST, runs=(before, *FAST.runs))

        assert compared(after=after) == compared()


class TestTheGain:
    def test_is_told_in_seconds_and_in_speed(self) -> None:
        text = compared()

        assert "Lost 50 % of the time in use before, 3.2 % after: 29.0 s won back." in text
        assert "1.92 times as fast, in wall time a step." in text

    def test_is_held_against_what_the_advice_said(self) -> None:
        assert "said: at most 2.00 times; that held." in compared()

    def test_is_held_against_advice_on_the_very_first_batch(self) -> None:
        late = gpu(60, {WAIT: 30})
        totals = late.totals._replace(first_input_wait_ns=s(30))
        late = replace(late, totals=totals, verdict=judge(totals))
        before = report(late, runs=(replace(run(wall_s=90), first_input_wait_ns=s(30)),))

        text = compared(before, report(gpu(60), runs=(run(wall_s=60),)))

        assert "The advice on waiting for the very first batch said: at most 1.50 times" in text

    def test_is_held_against_no_advice_where_another_training_ran_beside_it(self) -> None:
        more = replace(FAST, runs=(*FAST.runs, replace(run(), run="eval")))

        assert "1.92 times as fast, in wall time a step." in compared(after=more)
        assert "Only after: eval." in compared(after=more)
        assert "advice" not in compared(after=more)

    def test_is_held_against_no_advice_that_promised_no_speed(self) -> None:
        short = report(gpu(3, {WAIT: 3}), runs=(run(steps=50, wall_s=6),))
        shorter = report(gpu(3, {WAIT: 1}), runs=(run(steps=50, wall_s=4),))

        assert "1.50 times as fast" in compared(short, shorter)
        assert "advice" not in compared(short, shorter)

    def test_is_said_to_be_nothing_where_the_second_run_is_like_the_first(self) -> None:
        text = compared(after=SLOW)

        assert "nothing won back" in text
        assert "said: at most 2.00 times; nothing of it was gained" in text

    def test_that_exceeds_the_bound_is_said_to(self) -> None:
        faster = report(gpu(30, {WAIT: 1}), runs=(run(steps=500, wall_s=20),))

        assert "3.00 times as fast" in compared(after=faster)
        assert "that did not hold" in compared(after=faster)

    def test_leaves_out_what_the_compute_itself_became_faster(self) -> None:
        faster = report(gpu(20, {WAIT: 1}), runs=(run(steps=500, wall_s=21.0),))

        text = compared(after=faster)

        assert "2.86 times as fast" in text
        assert "The compute itself was 1.50 times as fast: less waiting gave 1.90." in text
        assert "that held" in text

    @pytest.mark.parametrize("side", ["before", "after"])
    def test_in_speed_cannot_be_told_without_counted_steps(self, side: str) -> None:
        untagged = report(gpu(30, {WAIT: 30}))

        text = compared(**{side: untagged})

        assert "steps were not counted in both" in text
        assert "times as fast, in wall time" not in text

    def test_may_be_none(self) -> None:
        assert "nothing won back" in compared(before=FAST, after=SLOW)

    def test_is_none_where_a_short_run_lost_fewer_seconds_and_a_greater_share(self) -> None:
        short = report(gpu(5, {WAIT: 20}))

        assert "Lost 50 % of the time in use before, 80 % after: nothing won back." in compared(
            after=short
        )

    def test_of_ranks_is_that_of_each_and_not_of_all_their_steps(self) -> None:
        before, after = (
            replace(one, runs=tuple(replace(one.runs[0], run=f"train-r{rank}") for rank in ranks))
            for one, ranks in ((SLOW, range(2)), (FAST, range(4)))
        )

        assert speedup(before, after) == pytest.approx(speedup(SLOW, FAST))
        assert "1.92 times as fast, in wall time a step, over the 2 trainings in both." in compared(
            before, after
        )

    def test_of_two_runs_one_after_the_other_is_not_that_of_both_at_once(self) -> None:
        again = replace(SLOW, runs=(*SLOW.runs, *SLOW.runs))

        assert speedup(again, SLOW) == pytest.approx(1)

    def test_in_speed_needs_a_training_of_one_name_in_both(self) -> None:
        before, after = (
            replace(one, runs=tuple(replace(run(), run=name) for name in names))
            for one, names in ((SLOW, "ab"), (FAST, "cd"))
        )

        text = compared(before, after)

        assert "Only before: a and b. Only after: c and d." in text
        assert "name them alike with GPUMON_RUN" in text

    def test_is_in_samples_where_a_step_is_of_another_size(self) -> None:
        small, large = (
            replace(one, runs=(replace(run(steps, 60), samples=16_000),))
            for one, steps in ((SLOW, 500), (SLOW, 250))
        )

        text = compared(small, large)

        assert text.startswith("A step of train is 32 samples in the first, 64 in the second")
        assert "samples a second 266.7 266.7" in text
        assert "1.00 times as fast, in samples a second." in text
        assert "The compute itself" not in text


class TestUnlikeReports:
    def test_are_said_to_be_unlike_before_anything_else(self) -> None:
        eight = report(
            *(gpu(600, index=at) for at in range(8)), runs=(run(steps=9_000, wall_s=600),)
        )

        text = compared(after=eight)

        assert text.startswith(
            "These are different simulations: 1 \N{MULTIPLICATION SIGN} NVIDIA A40 against 8 "
        )
        assert text.index("Compare shares of the time") < text.index("in use 60.0 s")

    def test_have_neither_a_speed_nor_seconds_won_back_nor_a_promise(self) -> None:
        eight = report(
            *(gpu(600, index=at) for at in range(8)), runs=(run(steps=9_000, wall_s=600),)
        )

        text = compared(after=eight)

        assert speedup(SLOW, eight) is None
        assert "wall time a step 120.0 ms 66.7 ms" in text
        assert "Speed: not compared, as the first lines say" in text
        assert "Lost 50 % of the time in use before, 0 % after: a smaller share." in text
        assert "times as fast" not in text.partition("before: ")[0]

    def test_of_another_length_have_no_seconds_won_back(self) -> None:
        night = report(gpu(16_000, {WAIT: 4_000}))

        assert "20 % of the time in use before, 50 % after: no smaller share." in compared(
            replace(night, runs=()), replace(SLOW, runs=())
        )


class TestManyRuns:
    def test_have_a_row_each_with_what_it_became(self) -> None:
        before, after = (
            replace(one, runs=tuple(replace(one.runs[0], run=name) for name in ("a", "b")))
            for one in (SLOW, FAST)
        )

        text = compared(before, after)

        assert "wall time a step a 120.0 ms 62.5 ms (1.92 times) b 120.0 ms 62.5 ms" in text

    def test_of_unlike_steps_became_faster_in_samples_alone(self) -> None:
        before, after = (
            replace(
                SLOW,
                runs=tuple(
                    replace(run(steps, 60), run=name, samples=16_000) for name in ("a", "b")
                ),
            )
            for steps in (500, 250)
        )

        text = compared(before, after)

        assert "wall time a step a 120.0 ms 240.0 ms b 120.0 ms 240.0 ms samples a second" in text
        assert "a 266.7 266.7 (1.00 times)" in text

    def test_are_cut_where_they_are_too_many(self) -> None:
        before, after = (
            replace(one, runs=tuple(replace(one.runs[0], run=f"a-r{at}") for at in range(64)))
            for one in (SLOW, FAST)
        )

        assert "and 56 more: --json has all of them" in compared(before, after)

    @pytest.mark.parametrize("wall_s", [1e-6, 1e7])
    def test_fit_their_columns_whatever_a_step_takes(self, wall_s: float) -> None:
        before, after = (
            replace(SLOW, runs=tuple(run(steps=1, wall_s=wall_s) for _ in "ab")) for _ in "ab"
        )
        two = tuple(
            replace(one, run=name * 40) for one, name in zip(before.runs, "ab", strict=True)
        )

        assert compared(replace(before, runs=two), replace(after, runs=two))


class TestTheVerdicts:
    def test_stand_below_with_the_titles_of_the_columns(self) -> None:
        text = side_by_side(SLOW, FAST, TextStyle(), titles=("slow input", "with prefetch"))

        assert "slow input: Starved" in text
        assert "with prefetch: Healthy" in text
