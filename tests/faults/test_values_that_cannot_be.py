"""What is made of answers that no device can mean, on both generations of the driver.

By a clock that the test moves.
"""

from __future__ import annotations

import math

import pytest

from tests.builders.driver import DriverStory
from tests.builders.driver_faults import DRAIN, FIRST, RATES, SECOND
from tests.fakenvml import codes
from tests.fakenvml.layout import DOUBLE, SIGNED_INT, SIGNED_LONG_LONG, UNSIGNED_INT

WINDOWS = 5
"""Samples in a second."""


def each_says(story: DriverStory, value: float, seconds: int) -> None:
    """So many seconds in which each sample of the first GPU says this."""
    for _ in range(seconds):
        end_us = story.fake.stamp_us(story.fake.now_ns()) + 1_000_000
        step_us = 1_000_000 // WINDOWS
        stamps = [end_us - step_us * back for back in range(WINDOWS)][::-1]
        story.fake.push(FIRST, *((stamp_us, value) for stamp_us in stamps))
        story.tick()


def errors(story: DriverStory) -> int:
    return story.state.collectors[0].errors_total


class TestAValueThatNoDeviceCanMean:
    @pytest.mark.parametrize(
        ("value_type", "value"),
        [
            (UNSIGNED_INT, 255),
            (UNSIGNED_INT, 101),
            (UNSIGNED_INT, 0xFFFF_FFFF),
            (DOUBLE, math.nan),
            (DOUBLE, math.inf),
            (DOUBLE, -0.5),
            (DOUBLE, 100.5),
            (SIGNED_INT, -1),
            (SIGNED_LONG_LONG, -100),
        ],
    )
    def test_is_counted_and_its_time_is_not_known(
        self, story: DriverStory, value_type: int, value: float
    ) -> None:
        story.fake.gpu(FIRST).value_type = value_type
        story.fake.ring(FIRST, [])
        each_says(story, 100, 3)
        before_s, errors_before = story.observed_s(FIRST), errors(story)

        each_says(story, value, 3)

        assert errors(story) - errors_before == 3 * WINDOWS
        assert story.observed_s(FIRST) == before_s
        each_says(story, 100, 3)
        assert story.observed_s(FIRST) - before_s == pytest.approx(3, abs=0.3)
        assert story.observed_s(SECOND) == pytest.approx(story.seconds_passed, abs=0.5)

    @pytest.mark.parametrize("value", [101, 255, 0xFFFF_FFFE])
    def test_from_the_call_beside_the_ring_is_as_much_refused(
        self, story: DriverStory, value: int
    ) -> None:
        story.fake.fail(DRAIN, codes.NOT_SUPPORTED, gpu=FIRST)
        story.tick(3)

        story.fake.gpu(FIRST).rates_percent = value
        gained_s = story.gained_s(FIRST, ticks=3)

        assert gained_s == [0]
        assert errors(story) == 3
        story.fake.gpu(FIRST).rates_percent = 100
        assert story.gained_s(FIRST, ticks=3) == pytest.approx([3], rel=0.1)

    def test_is_no_answer_where_neither_call_has_one(self, story: DriverStory) -> None:
        for function in (DRAIN, RATES):
            story.fake.fail(function, codes.NOT_SUPPORTED, gpu=FIRST)
        story.tick()

        assert story.gained_s(FIRST, ticks=10) == [0]
        sample = story.sample(FIRST)
        assert (sample.utilization_ratio, sample.busy, sample.error) == (None, (), None)
        assert sample.memory_used_bytes is not None
