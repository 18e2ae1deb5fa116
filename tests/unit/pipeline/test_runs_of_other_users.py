"""Another user's run in outlets: its label, its refused binding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.state import MonitorState
from gpumon.pipeline.reports import report_of
from tests.builders.monitor import ADA, ADAS_PROCESS, STRANGER, WAIT, Story, stranger, training


class TestALabel:
    @pytest.mark.parametrize(
        ("uid", "pid", "labels"),
        [
            (STRANGER, 66, [("train", ADA, 42), ("train-66", STRANGER, 66)]),
            (ADA, 43, [("train", ADA, 43)]),
        ],
        ids=["not to another user's", "to one of the same user"],
    )
    def test_passes_to_the_next_run(
        self, story: Story, uid: int, pid: int, labels: list[tuple[str, int, int]]
    ) -> None:
        training(story)
        story.pass_second(1.0)
        story.end_ring()
        training(story, "next", uid=uid, pid=pid)
        story.alter_facts("next", run="train")

        state = story.pass_second(1.0)

        assert sorted((run.run, run.owner_uid, run.pid) for run in state.runs) == labels

    def test_of_a_living_run_is_not_given_to_an_unlocked_copy(self, story: Story) -> None:
        stranger(story)
        training(story)
        ring = story.rings["train"]
        story.rings["stranger"] = replace(ring, key="a copy", owner_uid=STRANGER)
        story.end_ring("stranger")

        state = story.pass_second(1.0)

        assert sorted((run.run, run.owner_uid, run.alive) for run in state.runs) == [
            ("train", ADA, True),
            (f"train-{ring.host_pid}", STRANGER, False),
        ]


class TestTheReport:
    @pytest.fixture
    def refused(self, story: Story) -> MonitorState:
        """Ada trains, and another user's run names her GPU, with many facts."""
        story.processes[0] = (ADAS_PROCESS,)
        training(story)
        stranger(story)
        loader = {"workers": 0, "kind": "generator"}
        story.alter_facts("stranger", loader=loader, shares={"0": 1})
        for _ in range(20):
            story.pass_second_with({"train": [(0.0, WAIT)], "stranger": [(0.0, WAIT)]}, 0.5)
        return story.pass_second(0.5)

    def test_names_the_user_whose_binding_was_refused_and_why(self, refused: MonitorState) -> None:
        text = (
            "Run stranger (user 65534) names GPU 0, but no process of that user is on it: "
            "its tags do not count there."
        )

        assert any(note.startswith(text) for note in report_of(refused).notes)
        assert all(collector.success for collector in refused.collectors)  # no alert

    def test_takes_no_advice_from_the_facts_of_a_refused_run(self, refused: MonitorState) -> None:
        without = refused._replace(runs=tuple(run for run in refused.runs if run.run == "train"))

        assert report_of(refused).advice == report_of(without).advice
        assert {run.run: run.shares for run in refused.runs}["stranger"] == {}
