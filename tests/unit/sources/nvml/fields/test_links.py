"""Tests of the rates of PCIe and NVLink."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.fields.links import ByteCounter
from gpumon.sources.nvml.fields.table import NvmlCounter
from tests.builders.driver import DriverStory, Fake
from tests.builders.nvml import Refusals
from tests.fakenvml import codes

MEASURED, COUNTED = "nvmlDeviceGetPcieThroughput", "nvmlDeviceGetFieldValues"
MIB = 1 << 20
LAST_FIELD_WITHOUT_PCIE = 196
Rates = tuple[float | None, float | None]
PCIE_RATES: Rates = (1 * MIB, 2 * MIB)
"""The rates of the fake's GPUs by default."""


def pcie(story: DriverStory, slot: int = 0) -> Rates:
    details = story.details(slot)
    return details.pcie_transmitted_bytes_per_second, details.pcie_received_bytes_per_second


def nvlink(story: DriverStory) -> Rates:
    details = story.details(0)
    return details.nvlink_transmitted_bytes_per_second, details.nvlink_received_bytes_per_second


class TestPcie:
    def test_is_the_growth_of_the_drivers_counters(self, fake: Fake) -> None:
        story = fake.story(on=["pcie"], off=["energy"])
        assert pcie(story) == (None, None)

        story.tick(6)

        assert pcie(story) == pytest.approx(PCIE_RATES)
        assert nvlink(story) == (None, None)
        assert fake.calls(MEASURED) == 0

    @pytest.mark.parametrize(
        ("newest_field", "code"),
        [
            pytest.param(LAST_FIELD_WITHOUT_PCIE, 0, id="unknown fields"),
            pytest.param(LAST_FIELD_WITHOUT_PCIE + 1, 0, id="one direction only"),
            pytest.param(300, codes.FUNCTION_NOT_FOUND, id="function missing"),
        ],
    )
    def test_is_measured_if_the_driver_does_not_count(
        self, fake: Fake, newest_field: int, code: int
    ) -> None:
        fake.control.newest_field = newest_field
        fake.fail(COUNTED, code)
        story = fake.story(on=["pcie"], off=["energy"])

        story.tick(12)

        assert pcie(story) == PCIE_RATES
        assert fake.calls(COUNTED) == 2

    def test_is_measured_on_one_gpu_per_tick(self, fake: Fake) -> None:
        fake.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        fake.reorder(range(8))
        story = fake.story(on=["pcie"], off=["energy"])
        calls = []
        for _ in range(40):
            before = fake.calls(MEASURED)
            story.tick()
            calls.append(fake.calls(MEASURED) - before)

        assert set(calls) == {2}
        assert [pcie(story, slot) for slot in range(8)] == [PCIE_RATES] * 8

    def test_that_is_impossible_is_refused_and_counted(self, fake: Fake) -> None:
        fake.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        fake.gpu(0).pcie_tx_bytes_per_s = 0xFFFF_FFFF << 10
        story = fake.story(on=["pcie"], off=["energy"])

        assert pcie(story) == (None, 2 * MIB)
        assert story.frame.rejected == 1

    def test_is_measured_after_its_counter_wrapped(self, fake: Fake) -> None:
        begun = 30 * 2 * MIB  # the counter of what is received, at the first reading
        fake.gpu(0).pcie_counter_wraps_at = begun + 20 * MIB
        story = fake.story(on=["pcie"], period_s=5.0, after_s=5)
        assert pcie(story) == pytest.approx(PCIE_RATES)

        for _ in range(4):
            story.tick()
            assert all(rate is None or rate >= 0 for rate in pcie(story))

        assert pcie(story) == pytest.approx(PCIE_RATES)
        assert fake.calls(MEASURED) > 0


class TestNvlink:
    @pytest.mark.parametrize("touches_one_field_more", [0, 1])
    def test_adds_up_all_links(self, fake: Fake, touches_one_field_more: int) -> None:
        """The call needs room for one entry more than it asks for: some drivers touch it."""
        fake.control.touches_one_field_more = touches_one_field_more
        gpu = fake.gpu(0)
        gpu.nvlink_tx_bytes_per_s, gpu.nvlink_rx_bytes_per_s = 3 * MIB, 5 * MIB
        story = fake.story(on=["nvlink"], off=["energy"])
        assert nvlink(story) == (None, None)

        story.tick(6)

        assert nvlink(story) == pytest.approx((18 * 3 * MIB, 18 * 5 * MIB), rel=1e-6)
        assert pcie(story) == (None, None)

    @pytest.mark.parametrize(
        ("on", "pcie_rates"), [(["nvlink"], (None, None)), (["nvlink", "pcie"], PCIE_RATES)]
    )
    def test_is_not_read_again_on_a_board_without_links(
        self, fake: Fake, on: list[str], pcie_rates: Rates
    ) -> None:
        for slot in (0, 1):
            fake.gpu(slot).nvlink_count = 0
        story = fake.story(on=on, off=["energy"])

        for _ in range(2):
            story.tick(6)
            assert nvlink(story) == (None, None)

        assert pcie(story) == pytest.approx(pcie_rates)
        assert fake.calls(COUNTED) == (2 if on == ["nvlink"] else 6)


def a_counter(max_bytes_per_second: int, refuse: Refusals) -> ByteCounter:
    return ByteCounter(NvmlCounter("rate", 0, 0, 1, max_bytes_per_second, False), refuse)


class TestAByteCounter:
    @given(st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.integers(-2, 100)), max_size=40))
    def test_has_no_impossible_rate(self, readings: list[tuple[int, int]]) -> None:
        counter, now_ns = a_counter(10**12, Refusals()), NS_PER_S
        for count, wait_s in readings:
            now_ns += wait_s * NS_PER_S
            rate = counter.rate(count, now_ns)

            assert rate is None or 0.0 <= rate <= 1e12
