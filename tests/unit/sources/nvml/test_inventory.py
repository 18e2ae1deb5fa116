"""Tests of GPUs and MIG instances that change at run time; see ``faults/test_gpus_that_change``."""

from __future__ import annotations

import pytest

from gpumon.sources.nvml.fields.table import SLOW_PERIOD_S
from tests.builders.driver import Fake, holes_ns
from tests.builders.driver_faults import BY_INDEX
from tests.fakenvml import codes

NAME = "nvmlDeviceGetName"


class TestInstancesAtRunTime:
    def test_that_are_destroyed_are_removed_and_the_others_stay(self, fake: Fake) -> None:
        gone, stays = fake.cut(0, 2)
        story = fake.story(period_s=0.5, after_s=3)

        fake.destroy_part(0, 0)
        story.pass_s(1)

        assert story.uuids == [fake.uuid(0), stays, fake.uuid(1)]
        assert story.labels == ["0", "0:1", "1"]
        assert not story.gpu(gone).present
        assert story.gpu(gone).error is None
        assert story.message is None
        story.pass_s(11)
        assert holes_ns(story.busy(stays)) == []

    def test_that_are_recreated_are_other_devices(self, fake: Fake) -> None:
        (older,) = fake.cut(0, 1)
        fake.part_wave(0, 0, period_s=1.0, busy_ratio=1.0)
        story = fake.story(period_s=0.5, after_s=3)
        known_ns = story.gpu(older).totals.busy_ns

        fake.destroy_part(0, 0)
        newer = fake.create_part(0)
        fake.part_wave(0, 0, period_s=1.0, busy_ratio=0.0)
        story.tick(3)

        assert newer != older
        assert story.uuids == [fake.uuid(0), newer, fake.uuid(1)]
        story.pass_s(11)
        assert story.gpu(older).totals.busy_ns == known_ns
        assert story.gpu(newer).totals.busy_ns == 0
        assert story.observed_s(newer) > 5


class TestAGpuThatCannotBeRead:
    def test_is_checked_by_its_index_alone(self, fake: Fake) -> None:
        fake.fail(BY_INDEX, codes.NO_PERMISSION, gpu=1)
        story = fake.story(period_s=0.5)
        fake.forget_calls()

        story.pass_s(60)
        assert story.uuids == [fake.uuid(0)]
        assert fake.calls(NAME) == 0
        assert fake.calls(BY_INDEX) <= 60 / SLOW_PERIOD_S + 1
        fake.fail(BY_INDEX, 0, gpu=1)
        story.pass_s(6)

        assert story.uuids == [fake.uuid(0), fake.uuid(1)]

    @pytest.mark.parametrize("parts", [0, 1])
    def test_reports_no_old_values_when_it_is_back(self, fake: Fake, parts: int) -> None:
        uuid = fake.cut(0, 1)[0] if parts else fake.uuid(0)
        board = fake.part(0, 0) if parts else fake.gpu(0)
        fake.run(0, 4000, part=0 if parts else None)
        board.memory_used = 3 << 30
        story = fake.story(period_s=0.5, after_s=6)
        before = story.sample(uuid)
        fake.lose(0)
        story.pass_s(12)

        board.memory_used = 1 << 30
        fake.end(4000)
        fake.find(0)
        reported = [story.sample(uuid) for _ in range(12) if story.tick()]

        assert before.processes
        assert before.memory_used_bytes == 3 << 30
        assert {sample.memory_used_bytes for sample in reported} <= {None, 1 << 30}
        assert reported[-1].memory_used_bytes == 1 << 30
        assert not any(sample.processes for sample in reported)
        assert reported[-1].processes == ()
