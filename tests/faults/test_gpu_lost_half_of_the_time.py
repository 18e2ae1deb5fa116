"""A GPU that is lost for five of every ten seconds, on both driver generations."""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpumon
from gpumon.cli.daemon_log import CollectorLog, FieldLog, XidLog
from tests.builders.driver import DriverStory, busy_ns, total_ns
from tests.builders.driver_faults import FIRST, SECOND
from tests.fakenvml.control import FakeNvml
from tests.needs import in_make_truth

CYCLES = 30
TEN_MINUTES = 60
"""In cycles: verdicts look back as far."""
MOST_LINES = 4
"""A fault that comes and goes is one fault."""
MOST_GROWTH_BYTES = 40_000


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
            story.tick()
            each_tick()


def bytes_held_by_gpumon() -> int:
    """Memory that gpumon's code has allocated since ``tracemalloc`` was started, and not freed."""
    own = tracemalloc.Filter(True, str(Path(gpumon.__file__).parent / "*"))
    snapshot = tracemalloc.take_snapshot().filter_traces([own])
    return sum(one.size for one in snapshot.statistics("filename"))


class TestAGpuThatIsLostForFiveOfEveryTenSeconds:
    def test_is_observed_only_while_it_answers_and_logged_once(
        self, story: DriverStory, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        log = logging.getLogger("gpumon.test")
        collectors, fields, xids = CollectorLog(log), FieldLog(log), XidLog(log)
        errors_before = story.state.collectors[0].errors_total

        def follow() -> None:
            state = story.state
            fields.follow(state.gpus, state.taken_at_ns)
            collectors.follow(state.collectors, state.taken_at_ns, logged=fields.sentences)
            xids.follow(state.gpus, state.taken_at_ns)

        for _ in range(CYCLES):
            cycle(story, follow)
        totals, samples = story.gpu(FIRST).totals, story.busy(FIRST)

        # Of five seconds, what the ring still holds when it is back is known, too.
        assert 0.4 < story.observed_s(FIRST) / story.seconds_passed < 1.0
        assert totals.observed_ns == total_ns(samples)
        assert totals.busy_ns == pytest.approx(busy_ns(samples), abs=1e3)
        assert totals.busy_ns / totals.observed_ns == pytest.approx(0.6, abs=0.05)
        assert story.observed_s(SECOND) == pytest.approx(story.seconds_passed, abs=1)
        assert story.idle_ns(SECOND) == 0
        assert story.state.collectors[0].errors_total - errors_before >= 5 * CYCLES
        assert 1 <= len(caplog.records) <= MOST_LINES
        story.fake.find(FIRST)
        assert story.gained_s(FIRST, ticks=10)[0] > 5

    @in_make_truth
    def test_takes_no_more_memory_in_the_second_ten_minutes(self, story: DriverStory) -> None:
        story.fake.keep_busy(FIRST)  # up to a limit, pauses are kept
        held_bytes = []
        tracemalloc.start()
        for _ in range(2):
            for _ in range(TEN_MINUTES):
                cycle(story, lambda: story.frames.__delitem__(slice(-1)))
            gc.collect()
            held_bytes.append(bytes_held_by_gpumon())
        tracemalloc.stop()

        assert held_bytes[1] - held_bytes[0] < MOST_GROWTH_BYTES
