"""Specification of what changes slowly, where the driver takes its time with it or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from gpumon.core.sample import GpuDetails, GpuSample
from tests.builders_driver import DriverStory
from tests.builders_nvml import DRAIN, RATES
from tests.fakenvml.control import UNKNOWN, FakeNvml
from tests.patience import wait_until

LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
FOREVER_US = 60_000_000
ALWAYS = {"device", "busy", "xid_errors", "faults", "utilization_ratio", "power_watts"}


def answers(sample: GpuSample) -> set[str]:
    """What a GPU answers of what is read every few seconds."""
    told = {name for name, value in sample._asdict().items() if value is not None} - ALWAYS
    if sample.details is not None:
        details = sample.details._asdict().items()
        told |= {name for name, value in details if value is not None} - {"read_at_ns"}
    return told


@pytest.fixture
def story(fake_nvml: FakeNvml) -> Iterator[DriverStory]:
    for slot in (0, 1):
        fake_nvml.wave(slot, period_s=1.0, busy_ratio=1.0)
        fake_nvml.run(slot, 4000 + slot)
    others = set(threading.enumerate())
    told = DriverStory(fake_nvml, slow_patience_s=0.5)
    told.tick(10)
    yield told
    fake_nvml.delay(LIST, 0)
    fake_nvml.delay(LIST, 0, gpu=0)
    told.close()
    wait_until(lambda: others.issuperset(threading.enumerate()))


def hang(story: DriverStory, gpu: int | None = None) -> None:
    """Let the process list hang, and wait until it does."""
    story.fake.delay(LIST, FOREVER_US, gpu=gpu)
    wait_until(lambda: bool(story.tick()) and story.fake.waiting(LIST) == 1)


class TestACallThatHangs:
    def test_holds_up_no_observation_and_no_second_call_follows_it(
        self, story: DriverStory, fake_nvml: FakeNvml
    ) -> None:
        hang(story)
        threads = threading.active_count()
        uuids = [fake_nvml.uuid(slot) for slot in (0, 1)]
        before_ns = [story.observed_ns(uuid) for uuid in uuids]

        story.tick(30)

        gained_s = [(story.observed_ns(u) - b) / 1e9 for u, b in zip(uuids, before_ns, strict=True)]
        assert gained_s == pytest.approx([30.0, 30.0], abs=0.2)
        assert fake_nvml.waiting(LIST) == 1
        assert threading.active_count() <= threads

    def test_leaves_no_answer_that_is_older_than_three_periods(
        self, story: DriverStory, fake_nvml: FakeNvml
    ) -> None:
        uuids = [fake_nvml.uuid(slot) for slot in (0, 1)]
        well = [answers(story.sample(uuid)) for uuid in uuids]
        assert all(set(GpuDetails._fields) - {"read_at_ns"} <= told for told in well)
        assert all({"memory_used_bytes", "processes", "activity"} <= told for told in well)
        hang(story)

        story.tick(4)
        early = [answers(story.sample(uuid)) for uuid in uuids]
        story.tick(14)

        assert early == well
        assert [answers(story.sample(uuid)) for uuid in uuids] == [set(), set()]
        for uuid in uuids:
            assert story.sample(uuid).utilization_ratio == 1.0
            assert story.sample(uuid).power_watts is not None
            assert story.gpu(uuid).present

    def test_is_told_of_until_it_comes_back_with_all_answers(
        self, story: DriverStory, fake_nvml: FakeNvml
    ) -> None:
        uuid = fake_nvml.uuid(0)
        well = answers(story.sample(uuid))
        hang(story, gpu=0)
        story.tick(20)
        said = "GPU 0: reading its processes fails: the call has not come back"
        assert story.message == said

        fake_nvml.delay(LIST, 0, gpu=0)
        wait_until(lambda: fake_nvml.waiting(LIST) == 0)
        wait_until(lambda: bool(story.tick()) and answers(story.sample(uuid)) == well)
        story.tick(2)

        assert story.message is None

    @pytest.mark.measured
    def test_keeps_nobody_who_closes_the_source(
        self, story: DriverStory, fake_nvml: FakeNvml
    ) -> None:
        hang(story)
        began_s = time.monotonic()

        story.close()

        assert time.monotonic() - began_s < 1.0
        assert fake_nvml.calls("nvmlShutdown") == 0, "a call is inside"
        fake_nvml.delay(LIST, 0)
        wait_until(lambda: fake_nvml.calls("nvmlShutdown") == 1)

    def test_of_a_driver_that_is_gone_meanwhile_is_waited_for_before_it_is_opened_again(
        self, story: DriverStory, fake_nvml: FakeNvml
    ) -> None:
        hang(story)
        opened = fake_nvml.calls("nvmlInitWithFlags")
        fake_nvml.reload_driver()
        story.tick(20)
        assert fake_nvml.calls("nvmlInitWithFlags") == opened
        assert "has not come back" in (story.message or "")

        fake_nvml.delay(LIST, 0)
        uuids = [fake_nvml.uuid(slot) for slot in (0, 1)]
        wait_until(lambda: fake_nvml.waiting(LIST) == 0)
        time.sleep(0.05)
        assert story.ticks_until_read(uuids, most=10)

    def test_of_a_gpu_that_is_lost_meanwhile_tells_nothing_when_it_comes_back(
        self, story: DriverStory, fake_nvml: FakeNvml
    ) -> None:
        hang(story, gpu=0)
        fake_nvml.lose(0)
        story.tick(8)
        fake_nvml.find(0)
        story.tick()
        assert answers(story.sample(fake_nvml.uuid(0))) == set()

        fake_nvml.delay(LIST, 0, gpu=0)
        wait_until(lambda: fake_nvml.waiting(LIST) == 0)
        wait_until(lambda: bool(story.tick()) and bool(answers(story.sample(fake_nvml.uuid(0)))))


class TestUtilizationThatNobodyCanRead:
    @pytest.mark.parametrize("what", ["beyond 100 %", "calls that fail"])
    def test_is_no_answer_after_three_seconds(
        self, story: DriverStory, fake_nvml: FakeNvml, what: str
    ) -> None:
        uuid = fake_nvml.uuid(0)
        if what == "calls that fail":
            fake_nvml.ring(0, [])
            fake_nvml.fail(RATES, UNKNOWN, gpu=0)
        else:
            start_us = fake_nvml.stamp_us(fake_nvml.now_ns())
            fake_nvml.ring(0, [(start_us + 500_000 * k, 101) for k in range(1, 60)])
        seen = []
        for _ in range(12):
            story.tick()
            seen.append(story.sample(uuid).utilization_ratio)

        assert seen[3:] == [None] * 9
        assert story.sample(fake_nvml.uuid(1)).utilization_ratio == 1.0
        assert story.gpu(uuid).present

    def test_holds_for_three_periods_of_a_slow_sampler(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=1.0)
        story = DriverStory(fake_nvml, period_s=4.0)
        story.tick(3)
        fake_nvml.ring(0, [(fake_nvml.stamp_us(fake_nvml.now_ns()) + 9_000_000, 101)])
        seen = []
        for _ in range(4):
            story.tick()
            seen.append(story.sample(fake_nvml.uuid(0)).utilization_ratio)
        story.close()

        assert DRAIN in dict(story.state.call_counts)
        assert seen[2:] == [None, None]
        assert seen[0] == 1.0
