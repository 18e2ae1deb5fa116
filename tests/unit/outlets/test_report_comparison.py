"""Specification of the comparison: what was lost, what was won back, and what was promised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.phase import IdleCause
from gpumon.outlets.report_comparison import promise_was_kept, side_by_side, speedup
from gpumon.outlets.text_style import TextStyle
from tests.builders_report import gpu, report, run

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

    def test_of_several_runs_is_that_of_all_their_steps(self) -> None:
        two = report(gpu(30, {WAIT: 30}), runs=(run(steps=300), run(steps=200)))

        assert speedup(two, FAST) == pytest.approx(speedup(SLOW, FAST))


class TestAPromise:
    @pytest.mark.parametrize(
        ("bound", "measured", "kept"), [(2.0, 1.9, True), (2.0, 2.03, True), (2.0, 2.05, False)]
    )
    def test_is_kept_give_or_take_two_percent(
        self, bound: float, measured: float, kept: bool
    ) -> None:
        assert promise_was_kept(bound, measured) is kept


class TestTheVerdicts:
    def test_stand_below_with_the_titles_of_the_columns(self) -> None:
        text = side_by_side(SLOW, FAST, TextStyle(), titles=("slow input", "with prefetch"))

        assert "slow input: Starved" in text
        assert "with prefetch: Healthy" in text
