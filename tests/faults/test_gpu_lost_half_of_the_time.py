"""A GPU that is lost for five of every ten seconds, for twenty minutes, on both driver generations.

By a clock that the test moves.
"""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpumon
from gpumon.cli.daemon_log import CollectorLog, FieldLog, XidLog
from gpumon.core.clock import NS_PER_S
from tests.builders.driver import DriverStory, busy_ns, total_ns
from tests.builders.driver_faults import FIRST, SECOND
from tests.fakenvml.control import FakeNvml

CYCLES = 120
"""Five seconds lost; it is asked again, and its ring is read, within a few more."""
MOST_LINES = 4
"""Trouble that comes and goes is one trouble."""
MOST_GROWTH_BYTES = 40_000
"""In ten minutes, with five errors in each cycle."""


@pytest.fixture
def story(two_busy: FakeNvml) -> Iterator[DriverStory]:
    """The first GPU is busy for three of every five seconds, the second all the time."""
    two_busy.wave(FIRST, period_s=5.0, busy_ratio=0.6)
    story = DriverStory(two_busy)
    yield story
    story.close()


def cycle(story: DriverStory, each_tick: Callable[[], None] = lambda: None) -> None:
    """Five seconds in which the first GPU answers, and five in which it is lost."""
    for change in (story.fake.find, story.fake.lose):
        change(FIRST)
        for _ in range(5):
            story.tick()  # which holds the sums to be closed and no time to be made up
            each_tick()


def bytes_held_by_gpumon() -> int:
    """What its code has allocated since ``tracemalloc`` was started, and not freed."""
    own = tracemalloc.Filter(True, str(Path(gpumon.__file__).parent / "*"))
    snapshot = tracemalloc.take_snapshot().filter_traces([own])
    return sum(one.size for one in snapshot.statistics("filename"))


class TestAGpuThatIsLostForFiveOfEveryTenSeconds:
    def test_is_observed_while_it_answers_and_neither_busy_nor_idle_while_it_is_lost(
        self, story: DriverStory
    ) -> None:
        for _ in range(CYCLES // 4):
            cycle(story)
        totals, samples = story.gpu(FIRST).totals, story.busy(FIRST)

        # Of five seconds, what the ring still holds when it is back is known, too.
        assert 0.4 < story.observed_s(FIRST) / story.seconds_passed < 1.0
        assert totals.observed_ns == total_ns(samples)
        assert totals.busy_ns == pytest.approx(busy_ns(samples), abs=1e3)
        assert totals.busy_ns / totals.observed_ns == pytest.approx(0.6, abs=0.05)
        assert story.observed_s(SECOND) == pytest.approx(story.seconds_passed, abs=1)
        assert story.idle_ns(SECOND) == 0

    def test_fills_neither_log_nor_memory(
        self, story: DriverStory, caplog: pytest.LogCaptureFixture
    ) -> None:
        story.fake.keep_busy(FIRST)  # up to a limit, pauses are kept
        caplog.set_level(logging.INFO)
        log = logging.getLogger("gpumon.test")
        collectors, fields, xids = CollectorLog(log), FieldLog(log), XidLog(log)

        def follow() -> None:
            state = story.state
            fields.follow(state.gpus, state.taken_at_ns)
            collectors.follow(state.collectors, state.taken_at_ns, logged=fields.sentences)
            xids.follow(state.gpus, state.taken_at_ns)
            del story.frames[:-1]

        held_bytes = []
        errors_before = story.state.collectors[0].errors_total
        tracemalloc.start()
        for _ in range(2):
            for _ in range(CYCLES // 2):  # verdicts look back over ten minutes in use
                cycle(story, follow)
            gc.collect()
            held_bytes.append(bytes_held_by_gpumon())
        tracemalloc.stop()

        assert story.state.collectors[0].errors_total - errors_before >= 5 * CYCLES
        assert held_bytes[1] - held_bytes[0] < MOST_GROWTH_BYTES
        assert 1 <= len(caplog.records) <= MOST_LINES
        assert story.gpu(FIRST).totals.observed_ns < story.seconds_passed * NS_PER_S
