"""Tests of draining the driver's sample rings."""

from __future__ import annotations

import math

import pytest

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.sample_rings import SampleRings
from tests.builders.driver import Fake
from tests.builders.driver_faults import DRAIN
from tests.fakenvml.layout import DOUBLE, SIGNED_INT, SIGNED_LONG_LONG, UNSIGNED_INT


@pytest.fixture
def rings(library: NvmlLibrary) -> SampleRings:
    handles = [library.handle_by_index(index) for index in range(library.device_count())]
    return SampleRings(library, [handle for handle in handles if handle is not None])


class TestSampleRings:
    def test_returns_entries_newer_than_each_position(self, fake: Fake, rings: SampleRings) -> None:
        fake.ring(0, [(100, 10), (200, 20), (300, 30)])
        fake.ring(1, [(100, 40), (200, 50)])

        assert rings.drain({0: 100, 1: 100}) == {0: [(200, 20), (300, 30)], 1: [(200, 50)]}

    def test_enlarges_its_buffer_for_a_deeper_ring(self, fake: Fake, rings: SampleRings) -> None:
        fake.gpu(1).ring_depth = 500
        fake.ring(1, [(1000 + number, 5) for number in range(500)])

        whole, deep = rings.drain({0: 0, 1: 0}).values()

        assert len(whole) == 120
        assert [stamp for stamp, _ in deep] == list(range(1000, 1500))
        fake.forget_calls()
        rings.drain({0: 0, 1: 0})
        assert fake.calls(DRAIN) == 2

    @pytest.mark.parametrize(
        ("value_type", "value"),
        [
            (UNSIGNED_INT, 255),
            (DOUBLE, 37.5),
            (SIGNED_INT, -3),
            (SIGNED_LONG_LONG, -3),
            (DOUBLE, math.nan),  # for the track to refuse
        ],
    )
    def test_reads_values_of_each_type(
        self, fake: Fake, rings: SampleRings, value_type: int, value: float
    ) -> None:
        fake.gpu(0).value_type = value_type
        fake.ring(0, [(100, value)])

        (found,) = rings.drain({0: 0, 1: 0})[0]
        assert found == pytest.approx((100, value), rel=0, abs=0, nan_ok=True)
