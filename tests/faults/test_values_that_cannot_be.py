"""Fault 7, on both generations of the driver: what is made of answers that no device can mean.

By a clock that the test moves. What a daemon says of them on its port is in
``test_driver_that_answers_wrong.py``.
"""

from __future__ import annotations

import math

import pytest

from gpumon.core.clock import NS_PER_S
from tests.builders_driver import DriverStory
from tests.fakenvml.control import NOT_SUPPORTED, FakeNvml
from tests.fakenvml.layout import DOUBLE, SIGNED_INT, SIGNED_LONG_LONG, UNSIGNED_INT
from tests.faults.faulty_machine import DRAIN
from tests.faults.two_busy_gpus import FIRST, SECOND, observed_s

WINDOWS = 5
"""Samples in a second."""


class RingByHand:
    """The first GPU's ring, filled by the test; the second GPU is busy all the time."""

    def __init__(self, fake: FakeNvml, value_type: int = UNSIGNED_INT) -> None:
        self.fake = fake
        fake.gpu(FIRST).value_type = value_type
        self.story = DriverStory(fake)
        fake.ring(FIRST, [])
        self.seconds_of(100, 3)

    def seconds_of(self, value: float, count: int = 1) -> None:
        """So many seconds in which each sample says this."""
        for _ in range(count):
            end_us = self.fake.stamp_us(self.fake.now_ns()) + 1_000_000
            step_us = 1_000_000 // WINDOWS
            stamps = [end_us - step_us * back for back in range(WINDOWS)][::-1]
            self.fake.push(FIRST, *((stamp_us, value) for stamp_us in stamps))
            self.story.tick()

    @property
    def observed_s(self) -> float:
        return observed_s(self.story, FIRST)

    @property
    def idle_s(self) -> float:
        return self.story.idle_ns(self.fake.uuid(FIRST)) / NS_PER_S

    @property
    def errors(self) -> int:
        return next(one.errors_total for one in self.story.state.collectors if one.name == "nvml")


BAD_VALUES = [
    (UNSIGNED_INT, 255),
    (UNSIGNED_INT, 101),
    (UNSIGNED_INT, 0xFFFF_FFFF),
    (DOUBLE, math.nan),
    (DOUBLE, math.inf),
    (DOUBLE, -0.5),
    (DOUBLE, 100.5),
    (SIGNED_INT, -1),
    (SIGNED_LONG_LONG, -100),
]


class TestFault07AValueThatNoDeviceCanMean:
    @pytest.mark.parametrize(("value_type", "value"), BAD_VALUES)
    def test_is_counted_and_its_time_is_not_known(
        self, two_busy: FakeNvml, value_type: int, value: float
    ) -> None:
        ring = RingByHand(two_busy, value_type)
        before_s, errors = ring.observed_s, ring.errors

        ring.seconds_of(value, 3)

        assert ring.errors - errors == 3 * WINDOWS
        assert ring.observed_s == before_s
        ring.seconds_of(100, 3)
        assert ring.observed_s - before_s == pytest.approx(3, abs=0.3)
        assert ring.idle_s == 0
        passed_s = ring.story.seconds_passed
        assert observed_s(ring.story, SECOND) == pytest.approx(passed_s, abs=0.5)

    @pytest.mark.parametrize("value", [101, 255, 0xFFFF_FFFE])
    def test_from_the_call_beside_the_ring_is_as_much_refused(
        self, two_busy: FakeNvml, value: int
    ) -> None:
        two_busy.fail(DRAIN, NOT_SUPPORTED, gpu=FIRST)
        story = DriverStory(two_busy)
        uuid = two_busy.uuid(FIRST)
        story.tick(3)
        before_ns = story.observed_ns(uuid)

        two_busy.gpu(FIRST).rates_percent = value
        story.tick(3)

        assert story.observed_ns(uuid) == before_ns
        assert story.state.collectors[0].errors_total == 3
        two_busy.gpu(FIRST).rates_percent = 100
        story.tick(3)
        assert story.observed_ns(uuid) - before_ns == pytest.approx(3 * NS_PER_S, rel=0.1)
        assert story.idle_ns(uuid) == 0
        story.close()

    def test_is_no_answer_where_neither_call_has_one(self, two_busy: FakeNvml) -> None:
        for function in (DRAIN, "nvmlDeviceGetUtilizationRates"):
            two_busy.fail(function, NOT_SUPPORTED, gpu=FIRST)
        story = DriverStory(two_busy)
        story.tick(10)

        sample = story.sample(two_busy.uuid(FIRST))
        assert sample.utilization_ratio is None
        assert sample.busy == ()
        assert sample.error is None
        assert sample.memory_used_bytes is not None
        assert story.observed_ns(two_busy.uuid(FIRST)) == 0
        story.close()
