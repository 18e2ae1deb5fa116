"""Tests of MIG: a partitioned GPU is unknown, not idle; its instances are devices."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.gpm import SHORTEST_NS
from gpumon.sources.nvml.fields.processes import NewestRecords
from gpumon.sources.nvml.mig import listed_instances
from tests.builders.driver import Fake, busy_ns, holes_ns
from tests.builders.driver_faults import DRAIN, POWER
from tests.fakenvml import codes

PART_GET, METRICS_GET = "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet"
GIB = 1 << 30


def part_handles(fake: Fake) -> list[int]:
    """Handles of the instances of GPU 0, as the driver gives them."""
    library = NvmlLibrary()
    handle = library.handle_by_index(0)
    handles = [listing.handle for listing in listed_instances(library, handle or 0) or ()]
    library.close()
    return handles


class TestAGpuThatIsPartitioned:
    def test_is_listed_before_its_instances(self, fake: Fake) -> None:
        first = fake.cut(0, 2)
        second = fake.cut(1, 1)
        story = fake.story(period_s=0.5)

        assert story.uuids == [fake.uuid(0), *first, fake.uuid(1), *second]
        assert story.labels == ["0", "0:0", "0:1", "1", "1:0"]


class TestAnInstance:
    def test_describes_itself(self, fake: Fake) -> None:
        _, uuid = fake.cut(1, 2)

        device = fake.story(period_s=0.5).sample(uuid).device

        assert (device.index, device.mig_index) == (1, 1)
        assert device.parent_uuid == fake.uuid(1)
        assert (device.gpu_instance, device.compute_instance) == (8, 0)
        assert device.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert device.pci_bus_id == "00000000:19:00.0"
        assert device.driver_version == "580.95.05"
        assert device.memory_capacity_bytes == fake.gpu(1).memory_total // 8
        assert not device.mig_enabled

    @pytest.mark.parametrize("period_s", [0.1, 0.04, 1.0])
    def test_has_its_exact_utilisation(self, fake: Fake, period_s: float) -> None:
        made = fake.cut(0, 2)
        fake.part_wave(0, 0, period_s=0.73, busy_ratio=0.3)
        fake.part_wave(0, 1, period_s=1.9, busy_ratio=0.8)
        story = fake.story(period_s=period_s, after_s=8)

        for part, uuid in enumerate(made):
            samples = story.busy(uuid)
            start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
            assert end_ns - start_ns >= 6 * NS_PER_S
            assert holes_ns(samples) == []
            assert min(end - start for start, end, _ in samples) >= SHORTEST_NS
            truth_ns = fake.busy_ns(0, start_ns, end_ns, part=part)
            assert busy_ns(samples) == pytest.approx(truth_ns, rel=1e-9)

    @pytest.mark.parametrize("gpu_lists", [False, True], ids=["by itself", "by its GPU"])
    def test_has_memory_and_processes_of_its_own(
        self, fake: Fake, monkeypatch: pytest.MonkeyPatch, gpu_lists: bool
    ) -> None:
        first, second = fake.cut(0, 2)
        fake.part(0, 1).memory_used = 3 * GIB
        fake.run(0, 4000, part=1, memory_bytes=2 * GIB)
        read = NewestRecords.read

        def refused_of_parts(records: NewestRecords, seen_us: int = 0) -> list[Any] | None:
            if records._handle in part_handles(fake):
                records.code = codes.NOT_SUPPORTED
                return None
            return read(records, seen_us)

        if gpu_lists:
            monkeypatch.setattr(NewestRecords, "read", refused_of_parts)
        story = fake.story(period_s=0.5, after_s=12)

        (process,) = story.sample(second).processes or ()
        assert (process.pid, process.memory_used_bytes) == (4000, 2 * GIB)
        assert story.sample(second).memory_used_bytes == 3 * GIB
        assert story.sample(first).processes == ()
        assert story.sample(first).memory_used_bytes == 0

    def test_costs_two_calls_a_tick(self, fake: Fake) -> None:
        fake.cut(0, 3)
        # Events are waited for on a thread, at moments of its own.
        story = fake.story(off=["events"], period_s=0.1, after_s=3)
        fake.forget_calls()
        story.tick(4)

        assert fake.all_calls() == {DRAIN: 4, POWER: 8, PART_GET: 12, METRICS_GET: 12}

    def test_is_not_observed_during_a_stop_of_the_sampler(self, fake: Fake) -> None:
        (uuid,) = fake.cut(0, 1)
        story = fake.story(period_s=0.5, after_s=3)
        before_s = story.observed_s(uuid)

        fake.advance(60.0)
        story.pass_s(3)

        assert story.observed_s(uuid) - before_s <= 3


class TestAnInstanceWithoutUtilisation:
    def test_is_one_on_a_board_without_gpm(self, fake: Fake) -> None:
        (uuid,) = fake.cut(0, 1)
        fake.gpm(0, supported=False)
        story = fake.story(period_s=0.5, after_s=12)

        sample = story.sample(uuid)
        assert story.busy(uuid) == []
        assert (sample.utilization_ratio, sample.activity, sample.error) == (None, None, None)
        assert sample.memory_used_bytes == 0
        assert fake.calls(PART_GET) == 0
        assert fake.calls("nvmlGpmQueryDeviceSupport") <= 3

    def test_shares_its_gpu_instance_with_a_new_one(self, fake: Fake) -> None:
        (first,) = fake.cut(0, 1)
        story = fake.story(period_s=0.5, after_s=3)
        assert story.busy(first) != []
        second = fake.create_part(0)
        fake.part(0, 1).gpu_instance = fake.part(0, 0).gpu_instance

        story.pass_s(6)
        noticed_ns = fake.now_ns()
        story.pass_s(3)

        for uuid in (first, second):
            assert story.busy(uuid, since_ns=noticed_ns) == []
            assert story.sample(uuid).utilization_ratio is None


class TestAFailedSampleOfAnInstance:
    def test_leaves_unobserved_time_and_no_error(self, fake: Fake) -> None:
        (uuid,) = fake.cut(0, 1)
        fake.part_wave(0, 0, period_s=0.1, busy_ratio=1.0)
        story = fake.story(period_s=0.5, after_s=3)
        assert story.sample(uuid).utilization_ratio is not None

        fake.fail(PART_GET, codes.UNKNOWN)
        for _ in range(2):
            story.tick()
            failed = story.sample(uuid)
            assert (failed.busy, failed.utilization_ratio, failed.activity) == ((), None, None)
            assert failed.error is None
        fake.fail(PART_GET, 0)
        story.pass_s(3)

        assert holes_ns(story.busy(uuid)) == [round(3 * 0.5 * NS_PER_S)]
