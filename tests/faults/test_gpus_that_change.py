"""GPUs and MIG instances that change at run time, from the driver to the scraped metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause, TrainingMode
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords, RingsReading
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.driver import DriverStory
from tests.builders.driver_faults import MIG_MODE
from tests.builders.monitor import HOST_PID, WAIT, run_reading
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

BUSY, OBSERVED = "gpumon_gpu_busy_seconds_total", "gpumon_gpu_observed_seconds_total"
UTILIZATION, POWER = "gpumon_gpu_utilization_ratio", "gpumon_gpu_power_watts"
MEMORY, STARVED = "gpumon_gpu_memory_used_bytes", "gpumon_gpu_starved_seconds_total"
BUSY_RATIOS = (1.0, 0.25)


@pytest.fixture
def story(fake_nvml_of_both_generations: FakeNvml) -> Iterator[DriverStory]:
    """Six seconds of two GPUs, 100 % and 25 % busy, read once a second."""
    for slot, busy_ratio in enumerate(BUSY_RATIOS):
        fake_nvml_of_both_generations.wave(slot, period_s=1.0, busy_ratio=busy_ratio)
    made = DriverStory(fake_nvml_of_both_generations)
    made.tick(6)
    yield made
    made.close()


def scraped(story: DriverStory) -> str:
    exporter = MetricsExporter(clock=story.clock, version="1")
    exporter.publish(story.state)
    return exporter.render().body.decode()


def series(story: DriverStory, name: str) -> dict[str, float]:
    """The scraped values of one metric, by UUID."""
    lines = [line for line in scraped(story).splitlines() if line.startswith(f'{name}{{uuid="')]
    pairs = [line.rsplit(" ", 1) for line in lines]
    return {labels.split('"')[1]: float(value) for labels, value in pairs}


def assert_own_sums(story: DriverStory) -> None:
    """Verify that each GPU was observed all the time, with its own sums."""
    assert story.idle_ns(0) == 0
    for slot, busy_ratio in enumerate(BUSY_RATIOS):
        totals = story.gpu(slot).totals
        assert totals.busy_ns == pytest.approx(busy_ratio * totals.observed_ns, rel=0.05)
        assert story.observed_s(slot) == pytest.approx(story.seconds_passed, abs=0.5)


class TestMigSwitchedAtRunTime:
    def test_shows_instances_as_far_as_the_board_can_and_no_utilisation_of_their_gpu(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        made = fake.cut(0, 2)
        fake.part_wave(0, 1, period_s=1.0, busy_ratio=0.5)
        story.tick(30)

        parent = story.sample(0)
        assert parent.device.mig_enabled
        assert not story.sample(1).device.mig_enabled
        assert (parent.utilization_ratio, parent.activity, parent.error) == (None, None, None)
        assert story.idle_ns(0) == 0
        assert parent.power_watts == 310.5
        assert parent.temperature_celsius == 54
        assert parent.energy_joules is not None
        assert (parent.memory_used_bytes or 0) >= 20_480 << 20
        assert set(series(story, MEMORY)) == {*made, fake.uuid(0), fake.uuid(1)}
        assert set(series(story, POWER)) == {fake.uuid(0), fake.uuid(1)}
        observed_s = [series(story, OBSERVED)[uuid] for uuid in made]
        busy_s = [series(story, BUSY)[uuid] for uuid in made]
        if fake.driver.has_gpm:
            assert min(observed_s) >= 20.0
            assert busy_s == pytest.approx([0.0, 0.5 * observed_s[1]], abs=0.5)
            assert set(series(story, UTILIZATION)) == {*made, fake.uuid(1)}
        else:
            assert observed_s == busy_s == [0.0, 0.0]
            assert set(series(story, UTILIZATION)) == {fake.uuid(1)}

    @pytest.mark.parametrize("code", [codes.TIMEOUT, codes.UNKNOWN])
    @pytest.mark.parametrize("function", [MIG_MODE, "nvmlDeviceGetMigDeviceHandleByIndex"])
    def test_keeps_its_instances_while_the_call_fails(
        self, story: DriverStory, function: str, code: int
    ) -> None:
        made = story.fake.cut(0, 2)
        story.tick(10)
        story.fake.fail(function, code)

        for _ in range(20):
            story.tick()
            assert set(story.uuids) >= set(made)


def test_a_run_starves_its_mig_instance_and_nothing_else(fake_nvml: FakeNvml) -> None:
    beside, used = fake_nvml.cut(0, 2)
    for part in (0, 1):
        fake_nvml.part_wave(0, part, period_s=1.0, busy_ratio=0.6)
    fake_nvml.run(0, HOST_PID, part=1)
    with closing(DriverStory(fake_nvml)) as story:
        entered = RingEvent(RingKind.ENTER, story.clock.monotonic_ns(), WAIT, TrainingMode.TRAIN)
        events = RingRecords.of([entered])
        for _ in range(30):
            read_at_ns = story.clock.monotonic_ns() + NS_PER_S
            run = run_reading()._replace(read_at_ns=read_at_ns, events=events)
            story.rings, events = RingsReading(rings=(run,)), RingRecords.of([])
            story.tick()
        totals = {uuid: story.gpu(uuid).totals for uuid in (beside, used)}
        shown = {name: series(story, name) for name in (STARVED, UTILIZATION, OBSERVED)}

    assert story.state.runs[0].gpu_uuids == (used,)
    waited_ns = totals[used].idle_ns[IdleCause.INPUT_WAIT]
    assert waited_ns == pytest.approx(0.4 * totals[used].in_use_ns, rel=0.05)
    assert totals[beside].busy_ns > 10 * NS_PER_S
    assert IdleCause.INPUT_WAIT not in totals[beside].idle_ns
    assert shown[STARVED] == {beside: 0.0, used: waited_ns / NS_PER_S, fake_nvml.uuid(1): 0.0}
    assert fake_nvml.uuid(0) not in {*shown[UTILIZATION], *shown[OBSERVED]}


class TestAGpu:
    def test_that_is_removed_is_no_failure(self, story: DriverStory) -> None:
        story.fake.reorder([1])
        story.tick(7)

        assert story.labels == ["0"]
        assert story.uuid(0) not in scraped(story)
        assert not story.gpu(0).present
        assert not story.gpu(0).listed
        assert story.message is None
        assert series(story, BUSY) == {story.uuid(1): pytest.approx(0.25 * 13, abs=0.5)}

    def test_keeps_its_own_figures_when_indices_are_exchanged(self, story: DriverStory) -> None:
        story.fake.draw(1, busy_watts=111)
        for order in ([1, 0], [0, 1], [1, 0]):
            story.fake.reorder(order)
            story.tick(12)

            assert story.uuids == [story.uuid(slot) for slot in order]
            assert [gpu.device.index for gpu in story.state.gpus] == [0, 1]
            assert story.sample(1).power_watts == pytest.approx(111)

        assert_own_sums(story)
        assert f'gpu="0",name="{story.fake.driver.gpu_name}"' in scraped(story)

    @pytest.mark.parametrize("was_lost", [True, False])
    def test_is_the_same_gpu_after_it_moved(self, story: DriverStory, was_lost: bool) -> None:
        busy_before_s = series(story, BUSY)[story.uuid(0)]
        if was_lost:
            story.fake.lose(0)
        else:
            story.fake.reorder([1])
        story.tick(8)
        assert (story.uuid(0) in story.uuids) is was_lost
        assert story.uuid(0) not in series(story, BUSY)

        story.fake.reorder([1, 2, 0])
        story.fake.find(0)
        story.tick(20)

        assert story.uuids == [story.uuid(slot) for slot in (1, 2, 0)]
        assert story.gpu(0).device.index == 2
        assert series(story, BUSY)[story.uuid(0)] >= busy_before_s + 10.0
