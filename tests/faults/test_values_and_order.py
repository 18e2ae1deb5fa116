"""What is made of answers that no device can mean, and of GPUs that change places or are cut.

On both generations of the driver, by a clock that the test moves. What a daemon
says of the same faults on its port is in ``test_driver_that_answers_wrong.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from gpumon.core.clock import NS_PER_S
from tests.builders_driver import DriverStory
from tests.fakenvml.control import NOT_SUPPORTED, TIMEOUT, UNKNOWN, FakeNvml
from tests.fakenvml.layout import DOUBLE, SIGNED_INT, SIGNED_LONG_LONG, UNSIGNED_INT

DRAIN = "nvmlDeviceGetSamples"
FIRST, SECOND = 0, 1
WINDOWS = 5
"""Samples in a second."""


@pytest.fixture
def fake(fake_nvml_of_both_generations: FakeNvml) -> FakeNvml:
    for slot in (FIRST, SECOND):
        fake_nvml_of_both_generations.wave(slot, period_s=1.0, busy_ratio=1.0)
    return fake_nvml_of_both_generations


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
        return self.story.observed_ns(self.fake.uuid(FIRST)) / NS_PER_S

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
        self, fake: FakeNvml, value_type: int, value: float
    ) -> None:
        ring = RingByHand(fake, value_type)
        before_s, errors = ring.observed_s, ring.errors

        ring.seconds_of(value, 3)

        assert ring.errors - errors == 3 * WINDOWS
        assert ring.observed_s == before_s
        ring.seconds_of(100, 3)
        assert ring.observed_s - before_s == pytest.approx(3, abs=0.3)
        assert ring.idle_s == 0
        second_s = ring.story.observed_ns(fake.uuid(SECOND)) / NS_PER_S
        assert second_s == pytest.approx(ring.story.seconds_passed, abs=0.5)

    @pytest.mark.parametrize("value", [101, 255, 0xFFFF_FFFE])
    def test_from_the_call_beside_the_ring_is_as_much_refused(
        self, fake: FakeNvml, value: int
    ) -> None:
        fake.fail(DRAIN, NOT_SUPPORTED, gpu=FIRST)
        story = DriverStory(fake)
        uuid = fake.uuid(FIRST)
        story.tick(3)
        before_ns = story.observed_ns(uuid)

        fake.gpu(FIRST).rates_percent = value
        story.tick(3)

        assert story.observed_ns(uuid) == before_ns
        assert story.state.collectors[0].errors_total == 3
        fake.gpu(FIRST).rates_percent = 100
        story.tick(3)
        assert story.observed_ns(uuid) - before_ns == pytest.approx(3 * NS_PER_S, rel=0.1)
        assert story.idle_ns(uuid) == 0
        story.close()

    def test_is_no_answer_where_neither_call_has_one(self, fake: FakeNvml) -> None:
        for function in (DRAIN, "nvmlDeviceGetUtilizationRates"):
            fake.fail(function, NOT_SUPPORTED, gpu=FIRST)
        story = DriverStory(fake)
        story.tick(10)

        sample = story.sample(fake.uuid(FIRST))
        assert sample.utilization_ratio is None
        assert sample.busy == ()
        assert sample.error is None
        assert sample.memory_used_bytes is not None
        assert story.observed_ns(fake.uuid(FIRST)) == 0
        story.close()


class TestFault08AGpuThatIsCutInMidRun:
    @pytest.fixture
    def story(self, fake: FakeNvml) -> Iterator[DriverStory]:
        story = DriverStory(fake)
        story.tick(10)
        yield story
        story.close()

    def test_is_unknown_then_and_neither_idle_nor_busy(self, story: DriverStory) -> None:
        uuid = story.fake.uuid(FIRST)
        story.fake.cut(FIRST, 2)
        story.tick(10)
        before_ns = story.observed_ns(uuid)

        story.tick(60)

        assert story.observed_ns(uuid) == before_ns
        assert story.idle_ns(uuid) == 0
        assert story.sample(uuid).utilization_ratio is None
        assert story.sample(uuid).power_watts is not None
        assert story.gpu(uuid).device.mig_enabled
        assert story.message is None

    def test_has_instances_then_and_is_itself_again_when_they_are_gone(
        self, story: DriverStory
    ) -> None:
        instances = story.fake.cut(FIRST, 2)
        story.tick(10)
        assert story.frame is not None
        assert {gpu.device.uuid for gpu in story.frame.gpus} >= set(instances)
        before_ns = story.observed_ns(story.fake.uuid(FIRST))

        story.fake.uncut(FIRST)
        story.tick(20)

        assert {gpu.device.uuid for gpu in story.frame.gpus}.isdisjoint(instances)
        gained_ns = story.observed_ns(story.fake.uuid(FIRST)) - before_ns
        assert gained_ns > 12 * NS_PER_S
        assert story.idle_ns(story.fake.uuid(FIRST)) == 0

    @pytest.mark.parametrize("code", [TIMEOUT, UNKNOWN])
    def test_keeps_its_instances_while_its_mode_cannot_be_asked(
        self, story: DriverStory, code: int
    ) -> None:
        instances = story.fake.cut(FIRST, 2)
        story.tick(10)
        story.fake.fail("nvmlDeviceGetMigMode", code)

        for _ in range(20):
            story.tick()
            assert story.frame is not None
            assert {gpu.device.uuid for gpu in story.frame.gpus} >= set(instances)

    def test_costs_its_neighbour_nothing(self, story: DriverStory) -> None:
        story.fake.cut(FIRST, 3)
        story.tick(15)
        story.fake.uncut(FIRST)
        story.tick(15)

        seconds = story.observed_ns(story.fake.uuid(SECOND)) / NS_PER_S
        assert seconds == pytest.approx(story.seconds_passed, abs=0.5)


class TestFault08AGpuThatIsPluggedIn:
    def test_appears_within_an_inventory_and_costs_the_others_nothing(self, fake: FakeNvml) -> None:
        fake.reorder([SECOND])
        story = DriverStory(fake)
        story.tick(10)

        fake.reorder([FIRST, SECOND])
        story.tick(20)

        assert story.observed_ns(fake.uuid(FIRST)) > 12 * NS_PER_S
        seconds = story.observed_ns(fake.uuid(SECOND)) / NS_PER_S
        assert seconds == pytest.approx(story.seconds_passed, abs=0.5)
        story.close()


class TestFault09TheOrderOfTheIndices:
    def test_changes_whose_number_it_is_and_nobodys_figures(self, fake: FakeNvml) -> None:
        fake.wave(SECOND, period_s=1.0, busy_ratio=0.0)
        story = DriverStory(fake)
        story.tick(10)

        for order in ([SECOND, FIRST], [FIRST, SECOND]) * 3:
            fake.reorder(order)
            story.tick(7)
            labels = [story.gpu(fake.uuid(slot)).device.label for slot in order]
            assert labels == ["0", "1"]

        assert story.idle_ns(fake.uuid(FIRST)) == 0
        assert story.gpu(fake.uuid(SECOND)).totals.busy_ns == 0
        for slot in (FIRST, SECOND):
            seconds = story.observed_ns(fake.uuid(slot)) / NS_PER_S
            assert seconds == pytest.approx(story.seconds_passed, abs=0.5)
        story.close()
