"""Specification of MIG: a GPU that is cut is unknown, not idle; its instances are devices."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.gpm import SHORTEST_NS
from gpumon.sources.nvml.fields.processes import NewestRecords
from gpumon.sources.nvml.fields.table import nvml_options
from gpumon.sources.nvml.mig import places_in
from tests.builders_mig import TICK_S, Tell, busy_of, labels, seconds, true_busy_ns, uuids
from tests.fakenvml.control import NOT_SUPPORTED, UNKNOWN, FakeNvml

PART_GET, METRICS_GET = "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"
DRAIN, POWER = "nvmlDeviceGetSamples", "nvmlDeviceGetPowerUsage"
GIB = 1 << 30


def part_handles(fake: FakeNvml) -> list[int]:
    """Handles of the instances of GPU 0, as the driver gives them."""
    library = NvmlLibrary()
    handle = library.handle_by_index(0)
    handles = [place.handle for place in places_in(library, handle or 0) or ()]
    library.close()
    return handles


class TestAGpuThatIsCut:
    def test_is_unknown_which_is_neither_idle_nor_in_error(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)

        frames = seconds(story, 12)

        parent = story.sample(fake_nvml.uuid(0))
        assert parent.device.mig_enabled
        assert busy_of(frames, fake_nvml.uuid(0)) == []
        assert (parent.utilization_ratio, parent.activity, parent.error) == (None, None, None)
        assert story.gpu(fake_nvml.uuid(0)).totals.observed_ns == 0
        assert not story.sample(fake_nvml.uuid(1)).device.mig_enabled

    def test_keeps_what_is_the_boards_own(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        fake_nvml.cut(0, 2)
        story = tell(period_s=TICK_S)

        seconds(story, 1)

        parent = story.sample(fake_nvml.uuid(0))
        assert parent.power_watts == 310.5
        assert parent.temperature_celsius == 54
        assert parent.energy_joules is not None
        assert parent.memory_used_bytes == 20_480 << 20

    def test_stands_before_its_instances_in_the_order_of_the_board(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        first = fake_nvml.cut(0, 2)
        second = fake_nvml.cut(1, 1)
        story = tell(period_s=TICK_S)

        assert uuids(story) == [fake_nvml.uuid(0), *first, fake_nvml.uuid(1), *second]
        assert labels(story) == ["0", "0:0", "0:1", "1", "1:0"]

    def test_into_nothing_is_alone(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        fake_nvml.cut(0, 0)

        assert labels(tell(period_s=TICK_S)) == ["0", "1"]


class TestAnInstance:
    def test_says_who_it_is(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        _, uuid = fake_nvml.cut(1, 2)

        device = tell(period_s=TICK_S).sample(uuid).device

        assert (device.index, device.mig_index) == (1, 1)
        assert device.parent_uuid == fake_nvml.uuid(1)
        assert (device.gpu_instance, device.compute_instance) == (8, 0)
        assert device.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert device.pci_bus_id == "00000000:19:00.0"
        assert device.driver_version == "580.95.05"
        assert device.memory_capacity_bytes == fake_nvml.gpu(1).memory_total // 8
        assert not device.mig_enabled

    def test_tells_no_memory_where_it_is_switched_off_or_more_than_there_is(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        silent = tell(nvml_options(off=["memory"]), period_s=TICK_S).sample(uuid)
        fake_nvml.part(0, 0).memory_used = 1 << 50
        odd = tell(period_s=TICK_S)

        assert silent.memory_used_bytes is silent.device.memory_capacity_bytes is None
        assert odd.sample(uuid).memory_used_bytes is None
        assert odd.frame is not None
        assert odd.frame.rejected == 1

    @pytest.mark.parametrize("period_s", [0.1, 0.04, 1.0])
    def test_is_as_busy_as_it_truly_was(
        self, fake_nvml: FakeNvml, tell: Tell, period_s: float
    ) -> None:
        fake_nvml.cut(0, 2)
        fake_nvml.part_wave(0, 0, period_s=0.73, busy_ratio=0.3)
        fake_nvml.part_wave(0, 1, period_s=1.9, busy_ratio=0.8)
        story = tell(period_s=period_s)
        frames = []
        for _ in range(round(8 / period_s)):
            story.tick()
            assert story.frame is not None
            frames.append(story.frame.gpus)

        for part in (0, 1):
            samples = busy_of(frames, fake_nvml.part(0, part).uuid.decode())
            start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
            assert end_ns - start_ns >= 6 * NS_PER_S
            assert all(early.end_ns == late.start_ns for early, late in pairwise(samples))
            assert min(end - start for start, end, _ in samples) >= SHORTEST_NS
            busy_ns = sum((end - start) * ratio for start, end, ratio in samples)
            truth_ns = true_busy_ns(fake_nvml, 0, part, start_ns, end_ns)
            assert busy_ns == pytest.approx(truth_ns, rel=1e-9)

    def test_tells_how_much_of_it_works(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        fake_nvml.part_wave(0, 0, period_s=0.1, busy_ratio=0.5)
        fake_nvml.gpm(0, part=0, sm=0.25, occupancy=0.125, tensor=0.0, dram=1.0)
        story = tell(period_s=TICK_S)

        seconds(story, 1)

        sample = story.sample(uuid)
        assert sample.utilization_ratio == pytest.approx(0.5)
        assert sample.activity is not None
        assert sample.activity[2:] == pytest.approx([0.5, 0.125, 0.0625, 0.0, 0.5])

    def test_has_memory_and_processes_of_its_own(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        first, second = fake_nvml.cut(0, 2)
        fake_nvml.part(0, 1).memory_used = 3 * GIB
        fake_nvml.run(0, 4000, part=1, memory_bytes=2 * GIB)
        story = tell(period_s=TICK_S)

        seconds(story, 12)

        assert story.sample(second).memory_used_bytes == 3 * GIB
        assert [
            (one.pid, one.memory_used_bytes) for one in story.sample(second).processes or ()
        ] == [(4000, 2 * GIB)]
        assert story.sample(first).processes == ()
        assert story.sample(first).memory_used_bytes == 0

    def test_has_the_processes_that_its_gpu_lists_for_it_where_it_lists_none(
        self, fake_nvml: FakeNvml, tell: Tell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = fake_nvml.cut(0, 2)
        fake_nvml.run(0, 4000, part=1)
        read = NewestRecords.read

        def refused_of_parts(records: NewestRecords, seen_us: int = 0) -> list[Any] | None:
            if records._handle in part_handles(fake_nvml):
                records.code = NOT_SUPPORTED
                return None
            return read(records, seen_us)

        monkeypatch.setattr(NewestRecords, "read", refused_of_parts)
        story = tell(period_s=TICK_S)

        seconds(story, 12)

        assert [one.pid for one in story.sample(second).processes or ()] == [4000]
        assert story.sample(first).processes == ()

    def test_is_read_no_more_than_once_a_tick_and_at_no_other_price(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        fake_nvml.cut(0, 3)
        # Events are waited for on a thread, at moments of its own.
        story = tell(nvml_options(off=["events"]), period_s=0.1)
        story.tick(30)
        fake_nvml.forget_calls()
        story.tick(4)

        assert fake_nvml.all_calls() == {DRAIN: 4 + 8, PART_GET: 12, METRICS_GET: 12}

    def test_keeps_two_samples_in_the_driver(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        fake_nvml.cut(0, 3)
        story = tell(period_s=TICK_S)

        seconds(story, 20)

        assert fake_nvml.calls("nvmlGpmSampleAlloc") == 2 * (3 + 1)

    def test_over_a_stop_of_whoever_reads_is_not_observed(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        story = tell(period_s=TICK_S)
        seconds(story, 3)
        before_ns = story.gpu(uuid).totals.observed_ns

        fake_nvml.advance(60.0)
        seconds(story, 3)

        assert story.gpu(uuid).totals.observed_ns - before_ns <= 3 * NS_PER_S


class TestAnInstanceWhoseUtilisationNobodyKnows:
    def test_is_on_a_board_without_gpm(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        fake_nvml.gpm(0, supported=False)
        story = tell(period_s=TICK_S)

        frames = seconds(story, 12)

        sample = story.sample(uuid)
        assert busy_of(frames, uuid) == []
        assert (sample.utilization_ratio, sample.activity, sample.error) == (None, None, None)
        assert sample.memory_used_bytes == 0
        assert fake_nvml.calls(PART_GET) == 0
        assert fake_nvml.calls("nvmlGpmQueryDeviceSupport") <= 3

    def test_shares_its_gpu_instance_with_another(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        first, second, alone = fake_nvml.cut(0, 3)
        fake_nvml.part(0, 1).gpu_instance = fake_nvml.part(0, 0).gpu_instance
        fake_nvml.part(0, 1).compute_instance = 1
        story = tell(period_s=TICK_S)

        frames = seconds(story, 3)

        assert busy_of(frames, first) == busy_of(frames, second) == []
        assert story.sample(first).activity is None
        assert story.sample(first).error is None
        assert busy_of(frames, alone) != []

    def test_loses_it_when_another_is_made_beside_it(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        (first,) = fake_nvml.cut(0, 1)
        story = tell(period_s=TICK_S)
        before = seconds(story, 3)
        second = fake_nvml.create_part(0)
        fake_nvml.part(0, 1).gpu_instance = fake_nvml.part(0, 0).gpu_instance

        seconds(story, 6)
        after = seconds(story, 3)

        assert busy_of(before, first) != []
        assert busy_of(after, first) == busy_of(after, second) == []
        assert story.sample(first).utilization_ratio is None

    def test_is_there_where_gpm_is_switched_off(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        story = tell(nvml_options(off=["activity"]), period_s=TICK_S)

        assert busy_of(seconds(story, 3), uuid) == []
        assert not [name for name in fake_nvml.all_calls() if "Gpm" in name]


class TestASampleOfAnInstanceThatFails:
    def test_leaves_a_hole_of_unobserved_time_and_no_error(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        fake_nvml.part_wave(0, 0, period_s=0.1, busy_ratio=1.0)
        story = tell(period_s=TICK_S)
        before = seconds(story, 3)

        fake_nvml.fail(PART_GET, UNKNOWN)
        failing = seconds(story, 1)
        fake_nvml.fail(PART_GET, 0)
        after = seconds(story, 3)

        samples = busy_of(before + after, uuid)
        assert busy_of(failing, uuid) == []
        assert all(gpu.error is None for gpus in failing for gpu in gpus)
        holes_ns = [late.start_ns - early.end_ns for early, late in pairwise(samples)]
        assert [hole_ns for hole_ns in holes_ns if hole_ns] == [round((1.0 + TICK_S) * NS_PER_S)]

    def test_has_no_utilisation_meanwhile(self, fake_nvml: FakeNvml, tell: Tell) -> None:
        (uuid,) = fake_nvml.cut(0, 1)
        story = tell(period_s=TICK_S)
        seconds(story, 1)
        known = story.sample(uuid).utilization_ratio

        fake_nvml.fail(PART_GET, UNKNOWN)
        story.tick()

        assert known is not None
        assert story.sample(uuid).utilization_ratio is None
        assert story.sample(uuid).activity is None
