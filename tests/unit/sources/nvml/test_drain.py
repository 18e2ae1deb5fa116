"""Specification of the rings of samples: one call on every GPU, into buffers that are kept."""

from __future__ import annotations

import math
import time

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.drain import SampleRings
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.control import GPU_IS_LOST, NOT_FOUND, SUCCESS, FakeNvml
from tests.fakenvml.layout import DOUBLE, SIGNED_INT, SIGNED_LONG_LONG, UNSIGNED_INT

DRAIN = "nvmlDeviceGetSamples"


def handles(library: NvmlLibrary) -> list[int]:
    found = [library.handle_by_index(index) for index in range(library.device_count())]
    return [handle for handle in found if handle is not None]


class TestSampleRings:
    def test_brings_what_is_newer_than_each_position(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        fake_nvml.ring(0, [(100, 10), (200, 20), (300, 30)])
        fake_nvml.ring(1, [(100, 40), (200, 50)])
        rings = SampleRings(library, handles(library))

        first, second = rings.drain([100, 100])

        assert first == [(200, 20), (300, 30)]
        assert second == [(200, 50)]

    def test_asks_each_gpu_once(self, fake_nvml: FakeNvml, library: NvmlLibrary) -> None:
        rings = SampleRings(library, handles(library))

        for _ in range(10):
            rings.drain([0, 0])

        assert fake_nvml.calls(DRAIN) == 20

    def test_of_a_dry_ring_is_empty_and_no_error(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        fake_nvml.ring(0, [])
        fake_nvml.ring(1, [(100, 40)])
        rings = SampleRings(library, handles(library))

        assert rings.drain([0, 0]) == [[], [(100, 40)]]
        assert rings.codes == [NOT_FOUND, SUCCESS]

    def test_of_a_lost_gpu_leaves_the_others_alone(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        rings = SampleRings(library, handles(library))
        fake_nvml.lose(0)

        assert [len(row) for row in rings.drain([0, 0])] == [0, 120]
        assert rings.codes == [GPU_IS_LOST, SUCCESS]

    def test_makes_room_for_a_ring_that_is_deeper_than_it_thought(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        fake_nvml.gpu(1).ring_depth = 500
        fake_nvml.ring(1, [(1000 + number, 5) for number in range(500)])
        rings = SampleRings(library, handles(library))

        whole, deep = rings.drain([0, 0])

        assert len(whole) == 120
        assert [stamp for stamp, _ in deep] == list(range(1000, 1500))
        fake_nvml.forget_calls()
        rings.drain([0, 0])
        assert fake_nvml.calls(DRAIN) == 2

    @pytest.mark.parametrize(
        ("value_type", "value"),
        [(UNSIGNED_INT, 255), (DOUBLE, 37.5), (SIGNED_INT, -3), (SIGNED_LONG_LONG, -3)],
    )
    def test_reads_values_in_the_type_that_the_driver_names(
        self, fake_nvml: FakeNvml, library: NvmlLibrary, value_type: int, value: float
    ) -> None:
        fake_nvml.gpu(0).value_type = value_type
        fake_nvml.ring(0, [(100, value)])
        rings = SampleRings(library, handles(library))

        assert rings.drain([0, 0])[0] == [(100, value)]

    def test_lets_not_a_number_through_for_the_track_to_refuse(
        self, fake_nvml: FakeNvml, library: NvmlLibrary
    ) -> None:
        fake_nvml.gpu(0).value_type = DOUBLE
        fake_nvml.ring(0, [(100, math.nan)])
        rings = SampleRings(library, handles(library))

        ((_, value),) = rings.drain([0, 0])[0]

        assert math.isnan(value)

    def test_of_no_gpu_at_all_is_no_error(self, library: NvmlLibrary) -> None:
        rings = SampleRings(library, [])

        assert rings.drain([]) == []


@pytest.mark.parametrize("function", [DRAIN, "nvmlDeviceGetPowerUsage"])
def test_the_time_of_every_call_is_added_up(fake_nvml: FakeNvml, function: str) -> None:
    source = NvmlSource(SystemClock())
    fake_nvml.delay(function, 30_000)
    started_s = time.monotonic()

    frame = source.read()

    assert 0.06 <= dict(frame.call_seconds)[function] <= time.monotonic() - started_s


def test_every_call_of_the_driver_is_counted(fake_nvml: FakeNvml) -> None:
    source = NvmlSource(SystemClock())
    for _ in range(5):
        source.read()
    source.close()

    counted, called = dict(source.read().call_counts), fake_nvml.all_calls()
    source.close()

    assert counted[DRAIN] == called[DRAIN]
    assert counted["nvmlDeviceGetPowerUsage"] == called["nvmlDeviceGetPowerUsage"]
    assert counted["nvmlDeviceGetHandleByIndex_v2"] == 2 * 2
