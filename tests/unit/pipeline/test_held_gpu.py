"""A process that stays on a GPU without running anything holds it after ten minutes."""

from __future__ import annotations

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.phase import IdleCause
from gpumon.core.sample import ProcessSample
from gpumon.core.verdict import VerdictName
from gpumon.errors import UsageError
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import STEP, WAIT, Story, gpu
from tests.builders.time import s

NOTEBOOK = (ProcessSample(7, 1 << 30, uid=1000),)


def notebook(story: Story) -> Story:
    """A notebook computes for a minute, and then runs no cell."""
    story.processes[0] = NOTEBOOK
    story.pass_seconds(60, 1.0)
    return story


class TestAPauseOfANotebook:
    def test_is_pending_for_ten_minutes_and_lost_if_work_follows(self, story: Story) -> None:
        pending = gpu(notebook(story).pass_seconds(600, 0.0)).totals
        totals = gpu(story.pass_second(1.0)).totals

        assert (pending.pending_ns, pending.in_use_ns) == (s(600), s(60))
        assert totals.idle_ns == {IdleCause.UNKNOWN: s(600)}

    def test_is_no_use_once_it_is_longer(self, story: Story) -> None:
        held = gpu(notebook(story).pass_seconds(601, 0.0))

        assert held.totals.idle_ns == {IdleCause.NOT_IN_USE: s(601)}
        assert (held.totals.pending_ns, held.totals.in_use_ns) == (0, s(60))
        assert held.held == HeldGpu(7, "1000", None, 1 << 30, since_ns=story.now_ns - s(601))

    def test_of_forty_minutes_never_settles_in_one_lump(self, story: Story) -> None:
        notebook(story)
        before = gpu(story.state).totals.idle_total_ns
        for _ in range(2_400):
            after = gpu(story.pass_second(0.0)).totals.idle_total_ns
            assert after - before <= s(601)
            before = after
        assert gpu(story.pass_second(1.0)).totals.idle_total_ns == before


class TestAHeldGpu:
    def test_that_was_never_used_is_held_too(self, story: Story) -> None:
        other = ProcessSample(8, 1 << 20, uid=1001)
        story.processes[0] = (ProcessSample(7, 1 << 30, None, "python3", "ada", 1000), other)
        story.pass_seconds(600, 0.0, 0.0)
        assert gpu(story.state).held is None
        state = story.pass_seconds(2, 0.0, 0.0)

        report = report_of(state)
        assert gpu(state).verdict.name is VerdictName.NOT_IN_USE
        assert verdict_line(report) == (
            "held idle: Process 7 (python3, ada) holds 1.0 GiB of GPU 0, where nothing has run "
            "since 00:00 UTC. Other processes are there, too. GPU 1 ran no work."
        )
        assert next_line(report) == (
            "Ask ada whether process 7 is still needed. Ending it frees 1.0 GiB of GPU 0."
        )

    def test_is_not_called_unused_next_to_one_that_works(self, story: Story) -> None:
        story.processes[0] = NOTEBOOK
        verdict = verdict_line(report_of(story.pass_seconds(700, 0.0, 1.0)))

        assert verdict.startswith("healthy")
        assert "GPU 1 lost little time. Process 7 (user 1000) holds 1.0 GiB of GPU 0" in verdict
        table = render_report(report_of(story.state), TextStyle())
        assert "GPU 0: in use for 0 s, held by process 7\n" in table

    def test_is_held_by_who_has_been_there_for_long(self, story: Story) -> None:
        story.processes[0] = NOTEBOOK
        story.pass_seconds(700, 0.0)
        story.processes[0] = (*NOTEBOOK, ProcessSample(99, 40 << 30, uid=1001))
        held = gpu(story.pass_second(0.0)).held

        assert held is not None
        assert (held.pid, held.process_count) == (7, 2)

    def test_is_not_held_if_processes_come_and_go(self, story: Story) -> None:
        for pid in range(20):
            story.processes[0] = (ProcessSample(100 + pid, 1 << 30, uid=1000),)
            state = story.pass_seconds(60, 0.0)

        assert gpu(state).held is None

    @pytest.mark.parametrize(
        ("process", "level"), [(NOTEBOOK[0], 0.04), (NOTEBOOK[0]._replace(serves_others=True), 0.0)]
    )
    def test_is_not_held_by_a_little_work_or_by_a_server_of_others(
        self, story: Story, process: ProcessSample, level: float
    ) -> None:
        story.processes[0] = (process,)

        assert gpu(story.pass_seconds(700, level)).held is None

    def test_stays_held_through_an_empty_and_for_a_while_through_no_list(
        self, story: Story
    ) -> None:
        before = gpu(notebook(story).pass_seconds(700, 0.0)).held
        story.processes[0] = ()
        assert gpu(story.pass_second(0.0)).held is None
        story.processes[0] = NOTEBOOK
        assert gpu(story.pass_second(0.0)).held == before
        story.processes[0] = None

        assert gpu(story.pass_second(0.0)).held == before
        assert gpu(story.pass_seconds(40, 0.0)).held is None

    def test_is_reported_once_for_a_process_that_holds_several(self, story: Story) -> None:
        story.processes = {0: NOTEBOOK, 1: NOTEBOOK}
        report = report_of(story.pass_seconds(700, 0.0, 0.0))

        assert verdict_line(report) == (
            "held idle: Process 7 (user 1000) holds 2.0 GiB of GPUs 0 and 1, where nothing has run "
            "since 00:00 UTC."
        )
        assert next_line(report) == (
            "Ask user 1000 whether process 7 is still needed. Ending it frees 2.0 GiB of "
            "GPUs 0 and 1."
        )

    def test_is_in_the_report_as_json_and_refused_where_no_process_can_hold_it(
        self, story: Story
    ) -> None:
        document = encode_report(report_of(notebook(story).pass_seconds(700, 0.0)))

        assert document["gpus"][0]["held"] == {
            "pid": 7, "user": "1000", "command": None, "memory_bytes": 1 << 30, "processes": 1,
            "since": "1970-01-01T00:01:00+00:00",
        }  # fmt: skip
        again = encode_report(decode_report(document))
        assert again["gpus"][0]["held"] == document["gpus"][0]["held"]
        for wrong in ({"processes": 0}, {"pid": 0}, {"pid": -1}):
            damaged = {**document["gpus"][0], "held": document["gpus"][0]["held"] | wrong}
            with pytest.raises(UsageError):
                decode_report({**document, "gpus": [damaged]})

    def test_is_held_no_longer_than_it_was_observed(self, story: Story) -> None:
        story.processes[0] = NOTEBOOK
        story.pass_second(None)  # the first read of the driver's samples only finds the position
        story.pass_seconds(600, 0.0)
        assert gpu(story.state).held is None

        held = gpu(story.pass_seconds(2, 0.0)).held
        assert held is not None
        assert held.since_ns == story.now_ns - s(601)

    def test_begins_a_new_job_when_it_works_again(self, story: Story) -> None:
        notebook(story).pass_seconds(700, 0.0)
        story.errors[0] = "lost"
        assert gpu(story.pass_second(0.0)).held is None
        del story.errors[0]
        again = gpu(story.pass_seconds(20, 1.0))

        assert again.held is None
        assert again.totals.in_use_ns == again.totals.busy_ns == s(80)
        assert again.verdict.name is VerdictName.HEALTHY


class TestATaggedRun:
    def test_that_waits_for_longer_holds_nothing(self, story: Story) -> None:
        story.processes[0] = (ProcessSample(42, 1 << 30, uid=0),)
        story.ring()
        story.pass_seconds(20, 1.0, phases=[(0.0, STEP)])
        state = story.pass_seconds(700, 0.0, phases=[(0.0, WAIT)])

        assert gpu(state).held is None
        assert gpu(state).totals.idle_ns == {IdleCause.INPUT_WAIT: s(700)}
