"""The page's history: what happened when, tick by tick, within bounds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.state import MonitorState
from gpumon.outlets.http.page_history import KEPT_PERIODS, PageHistory
from tests.builders.monitor import Story
from tests.builders.state import (
    STARVED_UUID,
    S,
    healthy_gpu,
    jittered_states,
    monitor_state,
    starved_gpu,
)
from tests.builders.time import s

UNKNOWN, INPUT_WAIT = IdleCause.UNKNOWN, IdleCause.INPUT_WAIT


def after(seconds: float, totals: GpuTotals) -> MonitorState:
    """GPU 0 alone, with these totals, so many seconds after the start."""
    at_ns = s(seconds)
    gpu = starved_gpu(totals=totals, last_sample_at_ns=at_ns)
    return monitor_state(taken_at_ns=at_ns, gpus=(gpu,))


def busy(seconds: float) -> MonitorState:
    """The same, where it was busy all the time."""
    return after(seconds, GpuTotals(observed_ns=s(seconds), busy_ns=s(seconds)))


def points(history: PageHistory, uuid: str = STARVED_UUID) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(history.encode())["gpus"][uuid]
    return listed


def reported(*totals: GpuTotals) -> PageHistory:
    history = PageHistory()
    for seconds, total in enumerate(totals, start=1):
        history.append(after(seconds, total))
    return history


class TestAPoint:
    def test_is_what_the_counters_grew_by_in_one_tick(self) -> None:
        history = reported(
            GpuTotals(observed_ns=S, busy_ns=S),
            GpuTotals(observed_ns=2 * S, busy_ns=S + 4, idle_ns={INPUT_WAIT: S - 4}),
        )

        second = points(history)[1]

        assert (second["end_ns"], second["observed_ns"], second["busy_ns"]) == (2 * S, S, 4)
        assert second["idle_ns"] == {"input_wait": S - 4}
        assert second["starved_ns"] == S - 4
        assert second["utilization_ratio"] == 0.12

    def test_of_a_gpu_that_did_not_answer_has_no_time_and_no_utilization(self) -> None:
        history = PageHistory()
        history.append(monitor_state(gpus=(starved_gpu(),)))
        history.append(monitor_state(gpus=(starved_gpu(present=False),)))

        silent = points(history)[1]

        assert silent["end_ns"] == monitor_state().taken_at_ns
        assert silent["observed_ns"] == 0
        assert silent["utilization_ratio"] is None


class TestPointsOfASourceThatIsNeverOnTime:
    def test_lie_side_by_side_for_a_point_ends_where_its_samples_do(self, tmp_path: Path) -> None:
        history = PageHistory()
        for state in jittered_states(tmp_path, 30.0, 1.0):
            history.append(state)

        all_points = points(history, "GPU-followed-0")[1:]

        holes_ns = [
            after["end_ns"] - after["observed_ns"] - before["end_ns"]
            for before, after in itertools.pairwise(all_points)
        ]
        assert len(holes_ns) > 20
        assert {hole_ns for hole_ns in holes_ns if abs(hole_ns) > 1_000} == set()


PHASES_OF_A_SECOND = st.sampled_from(
    [TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.CHECKPOINT]
)


def story_points(drained_every: int, *levels: float | None) -> list[tuple[int, ...]]:
    """End, length, busy, pending and unknown time of the points after these seconds."""
    story, history = Story(drained_every=drained_every), PageHistory()
    for level in levels:
        history.append(story.pass_second(level))
    return [
        (
            one["end_ns"],
            one["observed_ns"],
            one["busy_ns"],
            one["pending_ns"],
            one["idle_ns"].get("unknown", 0),
        )
        for one in points(history, "GPU-0")
        if one["observed_ns"]
    ]


class TestPointsOfSamplesThatComeEveryFifthTick:
    @pytest.mark.parametrize(
        "levels",
        [
            [1.0, 0.0] * 30,
            [1.0] * 7 + [0.0] * 8 + [1.0] * 10 + [0.0] * 5,
            [0.3, 0.9, 0.6] * 20,
            [1.0] * 20 + [None] * 13 + [1.0] * 17,
        ],
        ids=["short pauses", "long pauses", "levels", "a hole"],
    )
    def test_have_the_time_of_the_samples(self, levels: list[float | None]) -> None:
        assert story_points(5, *levels) == story_points(1, *levels)

    def test_are_no_more_than_there_is_room_for(self) -> None:
        story, history = Story(drained_every=5), PageHistory()
        for _ in range(2 * KEPT_PERIODS):
            history.append(story.pass_second(1.0))
        kept, at_ns = points(history, "GPU-0"), story.state.taken_at_ns

        assert kept[0]["end_ns"] <= at_ns - (KEPT_PERIODS - 1) * S
        sequence = [point["sequence"] for point in kept]
        assert sequence == sorted(set(sequence))

    def test_are_sent_to_a_page_as_they_change(self) -> None:
        story, history = Story(drained_every=5), PageHistory()
        shown: dict[int, dict[str, Any]] = {}
        for level in [1.0, 0.0, 0.0, 1.0, 0.3, 1.0, 1.0] * 12:
            history.append(story.pass_second(level))
            shown |= {point["sequence"]: point for point in history.newest()["gpus"]["GPU-0"]}

            assert [shown[number] for number in sorted(shown)] == points(history, "GPU-0")

    @settings(deadline=None)
    @given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.lists(PHASES_OF_A_SECOND))
    def test_close_and_are_together_what_was_counted(
        self, levels: list[float], phases: list[TrainingPhase]
    ) -> None:
        story, history = Story(drained_every=5), PageHistory()
        story.ring()
        for second, level in enumerate(levels):
            entered = [(0.25, phases[second])] if second < len(phases) else []
            history.append(story.pass_second(level, phases=entered))
        totals, all_points = story.state.gpus[0].totals, points(history, "GPU-0")

        for point in all_points:
            idle_ns = sum(point["idle_ns"].values())
            assert point["busy_ns"] + idle_ns + point["pending_ns"] == point["observed_ns"]
        assert sum(point["busy_ns"] for point in all_points) == totals.busy_ns
        assert sum(point["pending_ns"] for point in all_points) == totals.pending_ns
        for cause in IdleCause:
            ns = sum(point["idle_ns"].get(cause.value, 0) for point in all_points)
            assert ns == totals.idle_ns.get(cause, 0)


class TestAPauseThatSettles:
    BUSY = GpuTotals(observed_ns=S, busy_ns=S)
    PAUSING = GpuTotals(observed_ns=3 * S, busy_ns=S, pending_ns=2 * S)
    SETTLED = GpuTotals(
        observed_ns=4 * S, busy_ns=2 * S, idle_ns={UNKNOWN: 2 * S}, suspected_ns=2 * S
    )

    def test_gets_its_cause_where_it_was_and_not_where_it_ended(self) -> None:
        assert points(reported(self.BUSY, self.PAUSING))[1]["pending_ns"] == 2 * S
        history = reported(self.BUSY, self.PAUSING, self.SETTLED)
        _, pause, end = points(history)

        assert (pause["pending_ns"], pause["idle_ns"]) == (0, {"unknown": 2 * S})
        assert (end["busy_ns"], end["idle_ns"]) == (S, {})
        assert (pause["suspected_ns"], end["suspected_ns"]) == (2 * S, 0)
        newest = history.newest()  # pages that have its points get them again
        assert newest["sequence"] == 3
        assert sorted(point["sequence"] for point in newest["gpus"][STARVED_UUID]) == [2, 3]

    def test_takes_along_earlier_pauses_when_the_pattern_shows_at_last(self) -> None:
        history = reported(
            self.BUSY,
            self.PAUSING,
            self.SETTLED._replace(suspected_ns=0),
            self.SETTLED._replace(observed_ns=5 * S, pending_ns=S, suspected_ns=0),
            GpuTotals(observed_ns=6 * S, busy_ns=3 * S, idle_ns={UNKNOWN: 3 * S},
                      suspected_ns=3 * S),
        )  # fmt: skip

        assert [point["suspected_ns"] for point in points(history)] == [0, 2 * S, 0, S, 0]

    def test_leaves_no_time_of_points_that_are_gone(self) -> None:
        history = PageHistory()
        for tick in range(1, 2 * KEPT_PERIODS):
            history.append(after(tick, GpuTotals(observed_ns=tick * S, pending_ns=tick * S)))
        last_ns = 2 * KEPT_PERIODS * S
        settled = GpuTotals(observed_ns=last_ns, idle_ns={UNKNOWN: last_ns}, suspected_ns=last_ns)
        history.append(after(2 * KEPT_PERIODS, settled))

        for point in points(history):
            assert point["idle_ns"] == {"unknown": S}
            assert point["suspected_ns"] == S

    def test_for_the_very_first_batch_is_input_wait_where_it_was_and_not_starved(self) -> None:
        waited = [GpuTotals(observed_ns=n * S, pending_ns=n * S) for n in (1, 2, 3)]
        begun = GpuTotals(
            observed_ns=4 * S, busy_ns=S, idle_ns={INPUT_WAIT: 3 * S}, first_input_wait_ns=3 * S
        )
        later = GpuTotals(
            observed_ns=5 * S, busy_ns=S, idle_ns={INPUT_WAIT: 4 * S}, first_input_wait_ns=3 * S
        )

        all_points = points(reported(*waited, begun, later))

        assert [one["idle_ns"].get("input_wait", 0) for one in all_points] == [S, S, S, 0, S]
        assert [one["starved_ns"] for one in all_points] == [0, 0, 0, 0, S]


class TestBounds:
    def test_what_is_kept_is_a_stretch_of_time_and_not_a_number_of_ticks(self) -> None:
        history = PageHistory()
        for tick in range(1, 2 * KEPT_PERIODS):
            state = busy(tick - tick % 2 / 50)
            history.append(state)
            if abs(tick - KEPT_PERIODS) > 25 and tick % 61 > 1:
                continue  # to encode all points takes long
            at_ns, kept = state.taken_at_ns, points(history)
            reaches_ns = at_ns - kept[0]["end_ns"] + kept[0]["observed_ns"]

            assert reaches_ns >= min(at_ns, KEPT_PERIODS * S)
            assert kept[0]["end_ns"] > at_ns - KEPT_PERIODS * S

        history.append(busy(7_000 - 2_000)._replace(taken_at_ns=6_000 * S))  # nothing new
        history.append(busy(7_000))  # after a standstill
        assert [point["end_ns"] for point in points(history)] == [7_000 * S]

    @pytest.mark.parametrize(
        ("ticks", "every_s", "gone_until_s"),
        [(600, 1.0, None), (650, 1.0, 50.0), (1_000, 0.5, 194.0)],
        ids=["all are kept", "the oldest are gone", "more came than there is room for"],
    )
    def test_leave_out_the_oldest_points_and_give_the_end_of_the_newest_dropped(
        self, ticks: int, every_s: float, gone_until_s: float | None
    ) -> None:
        history = PageHistory()
        for tick in range(1, ticks + 1):
            history.append(busy(tick * every_s))

        gone_until_ns = None if gone_until_s is None else s(gone_until_s)
        for one in (json.loads(history.encode()), history.newest()):
            assert (one["kept_ns"], one["kept_from_ns"]) == (600 * S, gone_until_ns)
        kept = points(history)
        assert {point["busy_ns"] for point in kept} == {s(every_s)}
        assert [point["sequence"] for point in kept] == [*range(ticks - len(kept) + 1, ticks + 1)]

    def test_a_gpu_that_left_the_machine_leaves_the_history(self) -> None:
        history = PageHistory()
        history.append(monitor_state())

        history.append(monitor_state(gpus=(healthy_gpu(),)))

        assert STARVED_UUID not in json.loads(history.encode())["gpus"]


ticks = st.lists(
    st.tuples(st.sampled_from(["busy", "tagged", "pause"]), st.integers(1, S)), max_size=60
)


class TestLaws:
    @settings(deadline=None)
    @given(ticks)
    def test_every_point_closes_and_together_they_are_the_totals(
        self, story: list[tuple[str, int]]
    ) -> None:
        totals = GpuTotals()
        history = PageHistory()
        for seconds, (what, spent_ns) in enumerate(story, start=1):
            totals = grown(totals, what, spent_ns)
            history.append(after(seconds, totals))

        all_points = points(history) if story else []

        for point in all_points:
            idle_ns = sum(point["idle_ns"].values())
            assert point["busy_ns"] + idle_ns + point["pending_ns"] == point["observed_ns"]
            assert 0 <= point["suspected_ns"] <= point["idle_ns"].get("unknown", 0)
        assert sum(point["pending_ns"] for point in all_points) == totals.pending_ns
        assert sum(point["suspected_ns"] for point in all_points) == totals.suspected_ns
        assert sum(point["busy_ns"] for point in all_points) == totals.busy_ns


def grown(totals: GpuTotals, what: str, spent_ns: int) -> GpuTotals:
    """Totals after one more tick: a pause is pending until the next busy or tagged tick."""
    observed_ns = totals.observed_ns + spent_ns
    if what == "pause":
        return totals._replace(observed_ns=observed_ns, pending_ns=totals.pending_ns + spent_ns)
    idle_ns = {**totals.idle_ns, UNKNOWN: totals.idle_ns.get(UNKNOWN, 0) + totals.pending_ns}
    if what == "tagged":
        idle_ns[INPUT_WAIT] = idle_ns.get(INPUT_WAIT, 0) + spent_ns
    return totals._replace(
        observed_ns=observed_ns,
        busy_ns=totals.busy_ns + (spent_ns if what == "busy" else 0),
        idle_ns=idle_ns,
        suspected_ns=totals.suspected_ns + totals.pending_ns,
        pending_ns=0,
    )
