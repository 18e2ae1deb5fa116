"""Specification of what outlets show of somebody else's run: its label, its refused claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpumon.core.state import MonitorState
from gpumon.pipeline.reports import report_of
from tests.builders_claims import (
    ADA,
    ADAS_PROCESS,
    STRANGER,
    STRANGERS_PID,
    stranger,
    training,
)
from tests.builders_story import WAIT, Story


class TestALabel:
    def test_is_not_taken_over_by_a_run_of_somebody_else(self) -> None:
        story = Story()
        training(story)
        story.pass_second(1.0)
        story.end_ring()
        stranger(story)
        ring = story.rings["stranger"]
        story.rings["stranger"] = replace(ring, facts=replace(ring.facts, run="train"))

        state = story.pass_second(1.0)

        assert sorted((run.run, run.owner_uid) for run in state.runs) == [
            ("train", ADA),
            (f"train-{STRANGERS_PID}", STRANGER),
        ]

    def test_of_a_run_that_lives_is_not_had_by_a_copy_that_nobody_holds(self) -> None:
        story = Story()
        stranger(story)
        training(story)
        ring = story.rings["train"]
        story.rings["stranger"] = replace(
            ring, key="a copy", owner_uid=STRANGER, alive=False, ended_ns=ring.read_at_ns
        )

        state = story.pass_second(1.0)

        assert sorted((run.run, run.owner_uid, run.alive) for run in state.runs) == [
            ("train", ADA, True),
            (f"train-{ring.host_pid}", STRANGER, False),
        ]

    def test_passes_to_the_next_run_of_the_same_user(self) -> None:
        story = Story()
        training(story)
        story.pass_second(1.0)
        story.end_ring()
        training(story, "again", pid=43)
        ring = story.rings["again"]
        story.rings["again"] = replace(ring, facts=replace(ring.facts, run="train"))

        state = story.pass_second(1.0)

        assert [(run.run, run.pid) for run in state.runs] == [("train", 43)]


class TestTheReport:
    @pytest.fixture
    def refused(self) -> Callable[[], MonitorState]:
        def state() -> MonitorState:
            story = Story()
            story.processes[0] = (ADAS_PROCESS,)
            training(story)
            stranger(story)
            ring = story.rings["stranger"]
            facts = replace(ring.facts, loader={"workers": 0, "kind": "generator"}, shares={"0": 1})
            story.rings["stranger"] = replace(ring, facts=facts)
            for _ in range(20):
                story.pass_second_with({"train": [(0.0, WAIT)], "stranger": [(0.0, WAIT)]}, 0.5)
            return story.pass_second(0.5)

        return state

    def test_says_whose_claim_was_refused_and_why(
        self, refused: Callable[[], MonitorState]
    ) -> None:
        notes = report_of(refused()).notes

        assert any(
            note.startswith(
                "Run stranger (user 65534) names GPU 0, but no process of that user is on it: "
                "what it says is not counted there."
            )
            for note in notes
        )

    def test_takes_no_advice_from_the_facts_of_a_refused_run(
        self, refused: Callable[[], MonitorState]
    ) -> None:
        state = refused()
        without = state._replace(runs=tuple(run for run in state.runs if run.run == "train"))

        assert report_of(state).advice == report_of(without).advice
        assert {run.run: run.shares for run in state.runs}["stranger"] == {}

    def test_does_not_page_whoever_is_on_call(self, refused: Callable[[], MonitorState]) -> None:
        assert all(collector.success for collector in refused().collectors)
