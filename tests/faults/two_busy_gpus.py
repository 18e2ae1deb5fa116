"""What the stories of a driver and of its GPUs ask of two GPUs that are busy all the time."""

from __future__ import annotations

import pytest

from gpumon.core.clock import NS_PER_S
from tests.builders_driver import DriverStory

FIRST, SECOND = 0, 1


def observed_s(story: DriverStory, slot: int) -> float:
    return story.observed_ns(story.fake.uuid(slot)) / NS_PER_S


def assert_back_within(story: DriverStory, seconds: int) -> None:
    """Both GPUs are observed again, and then all the time."""
    both = [story.fake.uuid(slot) for slot in (FIRST, SECOND)]
    assert story.ticks_until_read(both, most=seconds), story.message
    before_s = [observed_s(story, slot) for slot in (FIRST, SECOND)]
    story.tick(10)
    for slot in (FIRST, SECOND):
        assert observed_s(story, slot) - before_s[slot] == pytest.approx(10, abs=0.5)
    assert story.message is None
