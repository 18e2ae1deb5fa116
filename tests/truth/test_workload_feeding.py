"""Specification of the model under the workloads: a loader, its queue and the steps it feeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.truth.workloads.feeding import Loader, Steps, Training
from tests.truth.workloads.spans import spans_between, total_ms

NEVER = 10**9
times = st.integers(1, 400)


class Fed(NamedTuple):
    """What happened in so many steps of constant costs."""

    steps: Steps
    starved_ms: int


def fed(
    *,
    workers: int,
    depth: int,
    cost_ms: int,
    step_ms: int,
    count: int = 60,
    runs_ahead: bool = True,
) -> Fed:
    training = Training(0, 0, runs_ahead)
    steps = training.steps(
        Loader(workers, depth),
        np.full(count, cost_ms),
        np.full(count, step_ms),
        np.full(count, 1),
        until_ms=NEVER,
    )
    late = spans_between(np.maximum(steps.asked, steps.free)[1:], steps.ready[1:])
    return Fed(steps, total_ms(late))


class TestALoader:
    @settings(max_examples=50, deadline=None)
    @given(times, times)
    def test_with_workers_without_end_starves_no_one(self, cost_ms: int, step_ms: int) -> None:
        assert fed(workers=60, depth=60, cost_ms=cost_ms, step_ms=step_ms).starved_ms == 0

    @pytest.mark.parametrize("depth", [1, 2, 8])
    def test_with_one_slow_worker_sets_the_pace_of_the_device(self, depth: int) -> None:
        steps = fed(workers=1, depth=depth, cost_ms=250, step_ms=100).steps

        assert np.diff(steps.begun).tolist() == [250] * 59

    @settings(max_examples=50, deadline=None)
    @given(times, times, st.integers(1, 6), st.integers(1, 12), st.booleans())
    def test_with_a_deeper_queue_never_starves_more(
        self, cost_ms: int, step_ms: int, workers: int, depth: int, runs_ahead: bool
    ) -> None:
        starved_ms = [
            fed(
                workers=workers, depth=deep, cost_ms=cost_ms, step_ms=step_ms, runs_ahead=runs_ahead
            ).starved_ms
            for deep in (depth, depth + 1, depth + 5)
        ]

        assert starved_ms == sorted(starved_ms, reverse=True)

    def test_whose_workers_finish_together_feeds_bursts(self) -> None:
        steps = fed(workers=4, depth=8, cost_ms=1_000, step_ms=100, count=12).steps

        assert np.diff(steps.begun).tolist() == [100, 100, 100, 700] * 2 + [100, 100, 100]

    def test_without_workers_loads_while_the_device_idles(self) -> None:
        reported = fed(workers=1, depth=0, cost_ms=70, step_ms=100, count=11, runs_ahead=False)

        assert reported.starved_ms == 10 * 70

    def test_works_ahead_while_the_host_is_held_but_only_as_deep_as_its_queue(self) -> None:
        training, loader = Training(0, 0, runs_ahead=True), Loader(workers=1, depth=3)
        ones, costs, steps = np.full(1, 1), np.full(1, 500), np.full(1, 10)
        training.steps(loader, costs, steps, ones, until_ms=NEVER)

        training.hold(60_000)
        after = training.steps(
            loader, costs.repeat(5), steps.repeat(5), ones.repeat(5), until_ms=NEVER
        )

        late = after.ready > np.maximum(after.asked, after.free)
        assert late.tolist() == [False, False, False, True, True]

    def test_takes_longer_in_bad_weather(self) -> None:
        loader = Loader(workers=1, depth=1, weather=(1.0, 3.0))

        ready_ms = []
        for _ in range(4):
            ready_ms.append(loader.load(30_000, 0))
            loader.taken_ms.append(ready_ms[-1])

        assert ready_ms == [30_000, 60_000, 150_000, 240_000]


class TestATrainingRun:
    @settings(max_examples=50, deadline=None)
    @given(
        st.lists(st.tuples(times, times), min_size=1, max_size=30),
        st.booleans(),
        st.integers(0, 5_000),
    )
    def test_that_is_always_fed_is_as_one_whose_batches_cost_nothing(
        self, drawn: list[tuple[int, int]], runs_ahead: bool, until_ms: int
    ) -> None:
        columns = np.array(drawn)
        one, other = Training(7, 9, runs_ahead), Training(7, 9, runs_ahead)
        loader = Loader(workers=1, depth=100)

        vectorised = one.fed_steps(columns[:, 0], columns[:, 1], until_ms=until_ms)
        looped = other.steps(
            loader, 0 * columns[:, 0], columns[:, 0], columns[:, 1], until_ms=until_ms
        )

        for name in ("asked", "taken", "free", "begun", "ended"):
            assert getattr(vectorised, name).tolist() == getattr(looped, name).tolist(), name
        assert one == other

    def test_makes_no_step_that_would_begin_after_the_end(self) -> None:
        training = Training(0, 0)

        steps = training.fed_steps(np.full(9, 100), np.full(9, 1), until_ms=250)

        assert steps.begun.tolist() == [1, 102, 203]
        assert (training.at_ms, training.asked_in_vain_ms) == (250, 303)

    def test_never_works_on_a_batch_before_it_is_there(self) -> None:
        steps = fed(workers=3, depth=6, cost_ms=170, step_ms=40).steps

        assert (steps.ready <= steps.taken).all()
        assert (steps.taken < steps.begun).all()
        assert (steps.ended[:-1] <= steps.begun[1:]).all()
