"""A process that stays on a GPU and lets nothing run: after ten minutes, it only holds it."""

from __future__ import annotations

from gpumon.core.phase import IdleCause
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.reports import report_of
from tests.builders_story import STEP, WAIT, Story, gpu
from tests.builders_time import s

NOTEBOOK = (ProcessSample(7, 1 << 30, uid=1000),)


def notebook(story: Story) -> Story:
    """A notebook computes for a minute, and then nobody runs a cell."""
    story.processes[0] = NOTEBOOK
    story.pass_seconds(60, 1.0)
    return story


class TestAPauseOfANotebook:
    def test_is_pending_for_ten_minutes(self, story: Story) -> None:
        totals = gpu(notebook(story).pass_seconds(600, 0.0)).totals

        assert (totals.pending_ns, totals.in_use_ns) == (s(600), s(60))

    def test_is_lost_where_it_works_again_by_then(self, story: Story) -> None:
        notebook(story).pass_seconds(600, 0.0)
        totals = gpu(story.pass_second(1.0)).totals

        assert totals.idle_ns == {IdleCause.UNKNOWN: s(600)}

    def test_is_no_use_once_it_is_longer(self, story: Story) -> None:
        held = gpu(notebook(story).pass_seconds(601, 0.0))

        assert held.totals.idle_ns == {IdleCause.NOT_IN_USE: s(601)}
        assert (held.totals.pending_ns, held.totals.in_use_ns) == (0, s(60))
        assert held.held_since_ns == story.now_ns - s(601)

    def test_of_two_hours_never_settles_in_one_lump(self, story: Story) -> None:
        notebook(story)
        before = gpu(story.state).totals.idle_total_ns
        for _ in range(7_200):
            after = gpu(story.pass_second(0.0)).totals.idle_total_ns
            assert after - before <= s(601)
            before = after
        assert gpu(story.pass_second(1.0)).totals.idle_total_ns == before


class TestAHeldGpu:
    def test_is_named_with_who_holds_it_and_since_when(self, story: Story) -> None:
        state = notebook(story).pass_seconds(700, 0.0)

        notes = report_of(state).notes
        assert any("GPU 0 is held" in note and "process 7 is" in note for note in notes)

    def test_begins_a_new_job_when_it_works_again(self, story: Story) -> None:
        notebook(story).pass_seconds(700, 0.0)
        again = gpu(story.pass_seconds(20, 1.0))

        assert again.held_since_ns is None
        assert again.totals.in_use_ns == again.totals.busy_ns == s(80)
        assert again.verdict.name is VerdictName.HEALTHY

    def test_is_free_once_the_process_has_left(self, story: Story) -> None:
        notebook(story).pass_seconds(700, 0.0)
        story.processes[0] = ()

        assert gpu(story.pass_second(0.0)).held_since_ns is None


class TestATaggedRun:
    def test_that_waits_for_longer_holds_nothing(self, story: Story) -> None:
        story.processes[0] = (ProcessSample(42, 1 << 30, uid=0),)
        story.ring()
        story.pass_seconds(20, 1.0, phases=[(0.0, STEP)])
        state = story.pass_seconds(700, 0.0, phases=[(0.0, WAIT)])

        assert gpu(state).held_since_ns is None
        assert gpu(state).totals.idle_ns == {IdleCause.INPUT_WAIT: s(700)}
