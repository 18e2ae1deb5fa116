"""Specification of the inventory: GPUs and MIG instances that come, go, and move at run time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.fields.table import SLOW_PERIOD_S, nvml_options
from tests.builders_mig import TICK_S, Tell, busy_of, labels, seconds, uuids
from tests.fakenvml.control import (
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeNvml,
)

NAME, HANDLE = "nvmlDeviceGetName", "nvmlDeviceGetHandleByIndex_v2"


class TestInstancesAtRunTime:
    def test_appear_and_vanish_with_the_mode(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        story = tell(period_s=TICK_S)
        seconds(story, 6)
        before = uuids(story)

        made = fake_nvml.cut(0, 2)
        seconds(story, 6)
        cut = uuids(story)
        fake_nvml.uncut(0)
        seconds(story, 6)

        whole = [fake_nvml.uuid(0), fake_nvml.uuid(1)]
        assert before == whole
        assert cut == [fake_nvml.uuid(0), *made, fake_nvml.uuid(1)]
        assert uuids(story) == whole
        assert story.sample(fake_nvml.uuid(0)).utilization_ratio == 0.0
        assert not story.sample(fake_nvml.uuid(0)).device.mig_enabled
        assert story.message is None

    def test_are_never_idle_time_of_the_gpu_they_are_cut_from(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=1.0)
        story = tell(period_s=TICK_S)
        seconds(story, 6)
        idle_before_ns = story.idle_ns(fake_nvml.uuid(0))

        fake_nvml.cut(0, 2)
        seconds(story, 20)

        assert story.idle_ns(fake_nvml.uuid(0)) == idle_before_ns == 0
        assert story.gpu(fake_nvml.uuid(0)).present

    def test_that_are_destroyed_are_withdrawn_at_once_and_are_no_error(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        gone, stays = fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)
        seconds(story, 3)

        fake_nvml.destroy_part(0, 0)
        seconds(story, 1)

        assert uuids(story) == [fake_nvml.uuid(0), stays, fake_nvml.uuid(1)]
        assert labels(story) == ["0", "0:1", "1"]
        assert not story.gpu(gone).present
        assert story.gpu(gone).error is None
        assert story.message is None

    def test_that_are_made_anew_in_the_same_place_are_other_devices(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        (older,) = fake_nvml.cut(0, 1)
        fake_nvml.part_wave(0, 0, period_s=1.0, busy_ratio=1.0)
        story = tell(period_s=TICK_S)
        seconds(story, 3)
        known_ns = story.gpu(older).totals.busy_ns

        fake_nvml.destroy_part(0, 0)
        newer = fake_nvml.create_part(0)
        fake_nvml.part_wave(0, 0, period_s=1.0, busy_ratio=0.0)
        seconds(story, 3 * TICK_S)
        noticed = newer in uuids(story)
        seconds(story, 11)

        assert noticed
        assert newer != older
        assert uuids(story) == [fake_nvml.uuid(0), newer, fake_nvml.uuid(1)]
        assert story.gpu(older).totals.busy_ns == known_ns
        assert story.gpu(newer).totals.busy_ns == 0
        assert story.gpu(newer).totals.observed_ns > 5 * NS_PER_S

    def test_leave_no_sample_behind_in_the_driver(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)
        seconds(story, 6)
        held = fake_nvml.gpm_samples_held
        for _ in range(5):
            fake_nvml.destroy_part(0, 0)
            fake_nvml.create_part(0)
            seconds(story, 6)
        after = fake_nvml.gpm_samples_held
        fake_nvml.uncut(0)
        seconds(story, 6)

        assert (held, after) == (2 * 3, 2 * 3)
        assert fake_nvml.gpm_samples_held == 2 * 2

    def test_take_no_refused_value_back_with_them(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        fake_nvml.cut(0, 1)
        fake_nvml.part_wave(0, 0, period_s=1.0, busy_ratio=1.0)
        fake_nvml.gpm(0, part=0, sm=1.5)
        story = tell(period_s=TICK_S)
        rejected = []
        for _ in range(6):
            story.tick()
            rejected.append(story.frame.rejected if story.frame else 0)

        fake_nvml.uncut(0)
        for _ in range(20):
            story.tick()
            rejected.append(story.frame.rejected if story.frame else 0)

        assert min(rejected) == 0
        assert sum(rejected) == 6

    def test_leave_the_others_as_they_were(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        first, second = fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)
        seconds(story, 3)
        fake_nvml.destroy_part(0, 0)
        frames = seconds(story, 12)

        samples = busy_of(frames, second)
        assert all(early.end_ns == late.start_ns for early, late in pairwise(samples))
        assert first not in uuids(story)

    def test_are_not_dropped_because_the_driver_does_not_list_them_for_a_moment(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        made = fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)
        seconds(story, 3)

        fake_nvml.fail("nvmlDeviceGetMigDeviceHandleByIndex", UNKNOWN)
        fake_nvml.fail("nvmlDeviceGetMigMode", UNKNOWN)
        frames = seconds(story, 12)

        assert uuids(story) == [fake_nvml.uuid(0), *made, fake_nvml.uuid(1)]
        samples = busy_of(frames, made[0])
        assert all(early.end_ns == late.start_ns for early, late in pairwise(samples))


class TestTheGpuOfAnInstance:
    def test_that_is_lost_takes_its_instances_with_it_and_says_why(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        made = fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)
        seconds(story, 3)

        fake_nvml.lose(0, GPU_IS_LOST)
        lost = seconds(story, 12)
        errors = {gpu.device.uuid: gpu.error for gpu in lost[-1]}
        fake_nvml.find(0)
        back_ns = fake_nvml.now_ns()
        samples = busy_of(seconds(story, 12), made[0])

        assert {errors[uuid] for uuid in made} == {errors[fake_nvml.uuid(0)]}
        assert "lost" in (errors[made[0]] or "")
        assert errors[fake_nvml.uuid(1)] is None
        assert samples[0].start_ns >= back_ns
        assert uuids(story) == [fake_nvml.uuid(0), *made, fake_nvml.uuid(1)]

    def test_that_comes_to_another_index_takes_them_along(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        made = fake_nvml.cut(0, 1)
        story = tell(period_s=TICK_S)
        seconds(story, 3)

        fake_nvml.reorder([1, 0])
        frames = seconds(story, 12)

        assert uuids(story) == [fake_nvml.uuid(1), fake_nvml.uuid(0), *made]
        assert labels(story) == ["0", "1", "1:0"]
        samples = busy_of(frames, made[0])
        assert all(early.end_ns == late.start_ns for early, late in pairwise(samples))

    def test_that_is_reset_keeps_its_instances_and_covers_no_time_twice(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        made = fake_nvml.cut(0, 1)
        story = tell(period_s=TICK_S)
        before = seconds(story, 3)

        fake_nvml.reset(0)
        reset_ns = fake_nvml.now_ns()
        after = seconds(story, 12)

        samples = busy_of(before + after, made[0])
        assert uuids(story) == [fake_nvml.uuid(0), *made, fake_nvml.uuid(1)]
        assert all(early.end_ns <= late.start_ns for early, late in pairwise(samples))
        assert all(one.end_ns <= reset_ns or one.start_ns >= reset_ns for one in samples)
        assert samples[-1].end_ns > reset_ns + 5 * NS_PER_S

    def test_is_asked_again_for_what_it_did_not_tell_in_parts(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        parts_know_none = ("nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization")
        for function in parts_know_none:
            fake_nvml.fail(function, NOT_SUPPORTED, gpu=0)
        fake_nvml.gpu(0).mig_enabled = 1
        story = tell(nvml_options(on=["encoder"]), period_s=TICK_S)
        cut = story.sample(fake_nvml.uuid(0)).details

        for function in parts_know_none:
            fake_nvml.fail(function, 0, gpu=0)
        fake_nvml.gpu(0).mig_enabled = 0  # with the same handle
        seconds(story, 11)
        whole = story.sample(fake_nvml.uuid(0)).details

        assert cut is not None
        assert cut.encoder_ratio is None
        assert whole is not None
        assert whole.encoder_ratio == 0.0


class TestAGpuThatComesAndGoes:
    def test_is_told_of_no_more_once_it_is_unplugged(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        story = tell(period_s=TICK_S)
        seconds(story, 3)
        gone = fake_nvml.uuid(0)

        fake_nvml.reorder([1])
        seconds(story, 6)

        assert uuids(story) == [fake_nvml.uuid(1)]
        assert labels(story) == ["0"]
        assert not story.gpu(gone).present
        assert not story.gpu(gone).listed
        assert story.message is None

    def test_is_the_same_when_it_is_plugged_in_again_elsewhere(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=1.0)
        story = tell(period_s=TICK_S)
        seconds(story, 3)
        fake_nvml.reorder([1])
        seconds(story, 6)
        before_ns = story.gpu(fake_nvml.uuid(0)).totals.busy_ns

        fake_nvml.reorder([1, 2, 0])
        seconds(story, 12)

        assert uuids(story) == [fake_nvml.uuid(1), fake_nvml.uuid(2), fake_nvml.uuid(0)]
        assert story.gpu(fake_nvml.uuid(0)).device.index == 2
        assert story.gpu(fake_nvml.uuid(0)).totals.busy_ns > before_ns + 5 * NS_PER_S

    def test_lost_is_another_thing_and_comes_back_with_another_index(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        story = tell(period_s=TICK_S)
        seconds(story, 3)

        fake_nvml.lose(0)
        seconds(story, 12)
        listed = uuids(story)
        fake_nvml.reorder([1, 0])
        fake_nvml.find(0)
        seconds(story, 12)

        assert listed == [fake_nvml.uuid(0), fake_nvml.uuid(1)]
        assert uuids(story) == [fake_nvml.uuid(1), fake_nvml.uuid(0)]
        assert [gpu.device.index for gpu in story.state.gpus] == [0, 1]

    def test_refused_is_asked_for_by_its_index_alone_until_it_is_there(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        fake_nvml.fail(HANDLE, NO_PERMISSION, gpu=1)
        story = tell(period_s=TICK_S)
        fake_nvml.forget_calls()

        seconds(story, 60)
        listed, named, asked = uuids(story), fake_nvml.calls(NAME), fake_nvml.calls(HANDLE)
        fake_nvml.fail(HANDLE, 0, gpu=1)
        seconds(story, 6)

        assert listed == [fake_nvml.uuid(0)]
        assert named == 0
        assert asked <= 60 / SLOW_PERIOD_S + 1
        assert uuids(story) == [fake_nvml.uuid(0), fake_nvml.uuid(1)]

    def test_lost_for_long_costs_the_others_next_to_nothing(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        story = tell(period_s=TICK_S)
        seconds(story, 6)
        fake_nvml.lose(0)
        seconds(story, 12)
        fake_nvml.forget_calls()

        seconds(story, 60)

        assert fake_nvml.calls(NAME) == 0
        assert "lost" in (story.message or "")

    @pytest.mark.parametrize("parts", [0, 1])
    def test_lost_says_nothing_of_before_when_it_is_back(
        self, fake_nvml: FakeNvml, tell: Tell, parts: int
    ) -> None:
        uuid = fake_nvml.cut(0, 1)[0] if parts else fake_nvml.uuid(0)
        board = fake_nvml.part(0, 0) if parts else fake_nvml.gpu(0)
        fake_nvml.run(0, 4000, part=0 if parts else None)
        board.memory_used = 3 << 30
        story = tell(period_s=TICK_S)
        seconds(story, 6)
        before = story.sample(uuid)
        fake_nvml.lose(0)
        seconds(story, 12)

        board.memory_used = 1 << 30
        fake_nvml.end(4000)
        fake_nvml.find(0)
        told = [story.sample(uuid) for _ in range(12) if story.tick()]

        assert before.processes
        assert before.memory_used_bytes == 3 << 30
        assert {sample.memory_used_bytes for sample in told} <= {None, 1 << 30}
        assert told[-1].memory_used_bytes == 1 << 30
        assert not any(sample.processes for sample in told)
        assert told[-1].processes == ()

    def test_is_found_in_the_place_of_one_that_is_lost(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        story = tell(period_s=TICK_S)
        seconds(story, 3)

        fake_nvml.lose(0)
        seconds(story, 3)
        fake_nvml.reorder([2, 1])
        seconds(story, 12)

        assert uuids(story) == [fake_nvml.uuid(2), fake_nvml.uuid(1)]
        assert story.message is None
