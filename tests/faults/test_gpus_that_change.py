"""Faults 8 and 9, on both generations of the driver: GPUs and MIG at run time, and their order.

What the source tells goes through the real monitor to the text that is
scraped; single readings are specified beside the source.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders_driver import DriverStory
from tests.fakenvml.control import TIMEOUT, UNKNOWN, FakeNvml
from tests.faults.two_busy_gpus import observed_s

BUSY, OBSERVED = "gpumon_gpu_busy_seconds_total", "gpumon_gpu_observed_seconds_total"


@pytest.fixture
def story(fake_nvml_of_both_generations: FakeNvml) -> Iterator[DriverStory]:
    """Two GPUs, wholly busy and idle 75 %, read once a second."""
    fake_nvml_of_both_generations.wave(0, period_s=1.0, busy_ratio=1.0)
    fake_nvml_of_both_generations.wave(1, period_s=1.0, busy_ratio=0.25)
    made = DriverStory(fake_nvml_of_both_generations)
    yield made
    made.close()


def scraped(story: DriverStory) -> str:
    exporter = MetricsExporter(clock=story.clock, version="1")
    exporter.publish(story.state)
    return exporter.render()[0].decode()


def series(story: DriverStory, name: str) -> dict[str, float]:
    """A family of one label, the UUID, as it is scraped now."""
    lines = [line for line in scraped(story).splitlines() if line.startswith(f'{name}{{uuid="')]
    pairs = [line.rsplit(" ", 1) for line in lines]
    return {labels.split('"')[1]: float(value) for labels, value in pairs}


class TestFault08MigIsSwitchedAtRunTime:
    def test_the_gpu_that_is_cut_is_unknown_and_never_idle(self, story: DriverStory) -> None:
        fake = story.fake
        story.tick(6)
        cut_uuid = fake.uuid(0)
        idle_before_ns = story.idle_ns(cut_uuid)

        fake.cut(0, 2)
        story.tick(8)
        observed_ns = story.gpu(cut_uuid).totals.observed_ns
        story.tick(60)

        assert story.gpu(cut_uuid).totals.observed_ns == observed_ns
        assert story.idle_ns(cut_uuid) == idle_before_ns
        assert story.gpu(cut_uuid).device.mig_enabled
        assert story.message is None
        assert f'gpumon_gpu_power_watts{{uuid="{cut_uuid}"}}' in scraped(story)
        assert cut_uuid not in series(story, "gpumon_gpu_utilization_ratio")

    def test_each_instance_is_a_gpu_of_its_own_and_known_as_far_as_the_board_can_tell(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        made = fake.cut(0, 2)
        fake.part_wave(0, 1, period_s=1.0, busy_ratio=0.5)
        story.tick(30)

        assert set(series(story, "gpumon_gpu_memory_used_bytes")) >= set(made)
        observed_s = [series(story, OBSERVED)[uuid] for uuid in made]
        busy_s = [series(story, BUSY)[uuid] for uuid in made]
        if fake.driver.has_gpm:
            assert min(observed_s) >= 20.0
            assert busy_s == pytest.approx([0.0, 0.5 * observed_s[1]], abs=0.5)
        else:
            assert observed_s == busy_s == [0.0, 0.0]
            assert not set(made) & set(series(story, "gpumon_gpu_utilization_ratio"))

    @pytest.mark.parametrize("code", [TIMEOUT, UNKNOWN])
    def test_its_instances_stay_while_its_mode_cannot_be_asked(
        self, story: DriverStory, code: int
    ) -> None:
        made = story.fake.cut(0, 2)
        story.tick(10)
        story.fake.fail("nvmlDeviceGetMigMode", code)

        for _ in range(20):
            story.tick()
            assert story.frame is not None
            assert {gpu.device.uuid for gpu in story.frame.gpus} >= set(made)

    def test_it_costs_the_other_gpu_nothing(self, story: DriverStory) -> None:
        story.fake.cut(0, 3)
        story.tick(15)
        story.fake.uncut(0)
        story.tick(15)

        assert observed_s(story, 1) == pytest.approx(story.seconds_passed, abs=0.5)

    def test_what_was_destroyed_has_no_series_and_the_gpu_goes_on_where_it_was(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        story.tick(6)
        busy_before_s = series(story, BUSY)[fake.uuid(0)]
        made = fake.cut(0, 3)
        story.tick(12)

        fake.uncut(0)
        story.tick(8)
        story.tick(10)

        text = scraped(story)
        assert not [uuid for uuid in made if uuid in text]
        assert series(story, BUSY)[fake.uuid(0)] >= busy_before_s + 12.0
        assert story.idle_ns(fake.uuid(0)) == 0
        assert story.message is None

    def test_however_often_it_is_switched_sums_close_and_nothing_is_left_behind(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        for round_ in range(6):
            fake.cut(round_ % 2, 1 + round_)
            story.tick(7)
            fake.uncut(round_ % 2)
            story.tick(7)

        assert story.message is None
        assert fake.gpm_samples_held <= 4
        assert set(series(story, OBSERVED)) == {fake.uuid(0), fake.uuid(1)}


class TestFault08AGpuIsPluggedInOrOut:
    def test_one_that_is_added_is_observed_and_the_others_miss_nothing(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        story.tick(6)
        observed_ns = story.gpu(fake.uuid(0)).totals.observed_ns

        fake.wave(2, period_s=1.0, busy_ratio=0.5)
        fake.reorder([0, 1, 2])
        story.tick(20)

        assert series(story, OBSERVED)[fake.uuid(2)] >= 12.0
        assert story.gpu(fake.uuid(0)).totals.observed_ns >= observed_ns + 19.5 * NS_PER_S

    def test_one_that_is_taken_out_is_withdrawn_and_no_failure(self, story: DriverStory) -> None:
        fake = story.fake
        story.tick(6)

        fake.reorder([1])
        story.tick(7)

        assert fake.uuid(0) not in scraped(story)
        assert story.message is None
        assert story.gpu(fake.uuid(0)).totals.busy_ns > 4 * NS_PER_S


class TestFault09TheOrderChanges:
    def test_each_goes_on_with_its_own_sums_under_its_new_index(self, story: DriverStory) -> None:
        fake = story.fake
        story.tick(10)

        fake.reorder([1, 0])
        story.tick(30)

        for slot, busy_ratio in ((0, 1.0), (1, 0.25)):
            totals = story.gpu(fake.uuid(slot)).totals
            assert seconds(totals.observed_ns) >= 38.0
            assert totals.busy_ns == pytest.approx(busy_ratio * totals.observed_ns, rel=0.05)
        assert [gpu.device.index for gpu in story.state.gpus] == [0, 1]
        assert story.state.gpus[0].device.uuid == fake.uuid(1)
        assert f'gpu="0",name="{fake.driver.gpu_name}"' in scraped(story)

    def test_again_and_again_and_nobody_has_the_figures_of_another(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        for order in ([1, 0], [0, 1]) * 3:
            fake.reorder(order)
            story.tick(7)
            assert [story.gpu(fake.uuid(slot)).device.label for slot in order] == ["0", "1"]

        assert story.idle_ns(fake.uuid(0)) == 0
        for slot, busy_ratio in ((0, 1.0), (1, 0.25)):
            totals = story.gpu(fake.uuid(slot)).totals
            assert totals.busy_ns == pytest.approx(busy_ratio * totals.observed_ns, rel=0.05)
            assert observed_s(story, slot) == pytest.approx(story.seconds_passed, abs=0.5)

    def test_instances_move_with_their_gpu(self, story: DriverStory) -> None:
        fake = story.fake
        made = fake.cut(0, 2)
        story.tick(6)

        fake.reorder([1, 0])
        story.tick(12)

        assert [gpu.device.label for gpu in story.state.gpus] == ["0", "1", "1:0", "1:1"]
        assert [gpu.device.uuid for gpu in story.state.gpus[2:]] == [*made]

    def test_one_that_was_lost_comes_back_elsewhere_as_the_same(self, story: DriverStory) -> None:
        fake = story.fake
        story.tick(6)
        busy_before_s = series(story, BUSY)[fake.uuid(0)]
        fake.lose(0)
        story.tick(8)
        lost = series(story, BUSY)

        fake.reorder([1, 2, 0])
        fake.find(0)
        story.tick(20)

        assert fake.uuid(0) not in lost
        assert series(story, BUSY)[fake.uuid(0)] >= busy_before_s + 10.0
        assert story.gpu(fake.uuid(0)).device.index == 2
