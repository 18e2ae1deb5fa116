"""Specification of the rates of PCIe and NVLink: counted, and measured only where they are not."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import GpuDetails
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.fields.links import ByteCounter, LinkRates
from gpumon.sources.nvml.fields.table import NvmlCounter, nvml_options
from gpumon.sources.nvml.source import NvmlSource
from tests.builders_nvml import Refusals, open_at_a_standstill
from tests.fakenvml.control import FUNCTION_NOT_FOUND, NOT_SUPPORTED, UNKNOWN, FakeNvml

MEASURED = "nvmlDeviceGetPcieThroughput"
COUNTED = "nvmlDeviceGetFieldValues"
MIB = 1 << 20
LAST_FIELD_WITHOUT_PCIE = 196


def details_after(source: NvmlSource, fake: FakeNvml, *seconds: float) -> list[GpuDetails]:
    """What GPU 0 tells at once, and then after each of those times."""
    told = []
    for wait_s in (0.0, *seconds):
        fake.advance(wait_s)
        details = source.read().gpus[0].details
        assert details is not None
        told.append(details)
    source.close()
    return told


def pcie(details: GpuDetails) -> tuple[float | None, float | None]:
    return details.pcie_transmitted_bytes_per_second, details.pcie_received_bytes_per_second


def nvlink(details: GpuDetails) -> tuple[float | None, float | None]:
    return details.nvlink_transmitted_bytes_per_second, details.nvlink_received_bytes_per_second


class TestPcie:
    def test_is_the_difference_of_the_drivers_counters(self, fake_nvml: FakeNvml) -> None:
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))

        first, second = details_after(source, fake_nvml, 6.0)

        assert pcie(first) == (None, None)
        assert pcie(second) == pytest.approx((1 * MIB, 2 * MIB))
        assert nvlink(second) == (None, None)
        assert fake_nvml.calls(MEASURED) == 0

    @pytest.mark.parametrize("why", ["unknown field", "function missing", "one direction only"])
    def test_is_measured_where_the_driver_does_not_count_it(
        self, fake_nvml: FakeNvml, why: str
    ) -> None:
        if why == "unknown field":
            fake_nvml.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        elif why == "one direction only":
            fake_nvml.control.newest_field = LAST_FIELD_WITHOUT_PCIE + 1
        else:
            fake_nvml.fail(COUNTED, FUNCTION_NOT_FOUND)
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))

        *_, last = details_after(source, fake_nvml, 6.0, 6.0)

        assert pcie(last) == (1 * MIB, 2 * MIB)
        assert fake_nvml.calls(COUNTED) == 2

    def test_is_measured_on_one_gpu_in_a_tick(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        fake_nvml.reorder(range(8))
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))
        calls = []
        for _ in range(40):
            before = fake_nvml.calls(MEASURED)
            gpus = source.read().gpus
            calls.append(fake_nvml.calls(MEASURED) - before)
            fake_nvml.advance(1.0)
        source.close()

        assert set(calls) == {2}
        assert [gpu.details and pcie(gpu.details) for gpu in gpus] == [(1 * MIB, 2 * MIB)] * 8

    def test_is_measured_again_after_the_usual_time_and_not_sooner(
        self, fake_nvml: FakeNvml
    ) -> None:
        fake_nvml.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        fake_nvml.reorder([0])
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))

        details_after(source, fake_nvml, *[0.5] * 40)

        assert fake_nvml.calls(MEASURED) == 2 * (1 + 4)

    def test_is_no_answer_where_it_can_be_told_in_no_way(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        fake_nvml.fail(MEASURED, NOT_SUPPORTED)
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))

        told = details_after(source, fake_nvml, 6.0, 6.0, 6.0)

        assert {pcie(details) for details in told} == {(None, None)}
        assert fake_nvml.calls(MEASURED) == 2 * 2

    def test_that_no_slot_can_carry_is_refused_and_counted(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.control.newest_field = LAST_FIELD_WITHOUT_PCIE
        fake_nvml.gpu(0).pcie_tx_bytes_per_s = 0xFFFF_FFFF << 10
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))
        frame = source.read()
        source.close()

        assert frame.gpus[0].details is not None
        assert pcie(frame.gpus[0].details) == (None, 2 * MIB)
        assert frame.rejected == 1

    def test_whose_counter_wrapped_is_not_told_and_is_measured_from_then_on(
        self, fake_nvml: FakeNvml
    ) -> None:
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["pcie"]))
        begun = 30 * 2 * MIB  # the counter of what is received, at the first reading
        fake_nvml.gpu(0).pcie_counter_wraps_at = begun + 20 * MIB

        told = [pcie(details) for details in details_after(source, fake_nvml, *[5.0] * 5)]

        assert told[1] == pytest.approx((1 * MIB, 2 * MIB))
        assert all(rate is None or rate >= 0 for rates in told for rate in rates)
        assert told[-1] == pytest.approx((1 * MIB, 2 * MIB))
        assert fake_nvml.calls(MEASURED) > 0


class TestNvlink:
    def test_adds_up_all_links(self, fake_nvml: FakeNvml) -> None:
        gpu = fake_nvml.gpu(0)
        gpu.nvlink_tx_bytes_per_s, gpu.nvlink_rx_bytes_per_s = 3 * MIB, 5 * MIB
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["nvlink"]))

        first, second = details_after(source, fake_nvml, 6.0)

        assert nvlink(first) == (None, None)
        assert nvlink(second) == pytest.approx((18 * 3 * MIB, 18 * 5 * MIB), rel=1e-6)
        assert pcie(second) == (None, None)

    def test_is_not_asked_for_again_on_a_board_without_links(self, fake_nvml: FakeNvml) -> None:
        for slot in (0, 1):
            fake_nvml.gpu(slot).nvlink_count = 0
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["nvlink"]))

        told = details_after(source, fake_nvml, 6.0, 6.0)

        assert {nvlink(details) for details in told} == {(None, None)}
        assert fake_nvml.calls(COUNTED) == 2

    def test_leaves_a_board_without_links_the_rates_of_pcie(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).nvlink_count = 0
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["nvlink", "pcie"]))

        *_, last = details_after(source, fake_nvml, 6.0, 6.0)

        assert pcie(last) == pytest.approx((1 * MIB, 2 * MIB))
        assert nvlink(last) == (None, None)

    def test_is_told_again_after_a_reading_that_failed(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).nvlink_tx_bytes_per_s = MIB
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["nvlink"]))
        source.read()
        fake_nvml.fail(COUNTED, UNKNOWN)
        fake_nvml.advance(6.0)
        source.read()
        fake_nvml.fail(COUNTED, 0)

        _, later = details_after(source, fake_nvml, 6.0)

        assert nvlink(later) == pytest.approx((18 * MIB, 0.0))

    def test_has_no_rate_across_a_reset(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).nvlink_tx_bytes_per_s = 100 * MIB
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["nvlink"]))
        source.read()
        fake_nvml.control.origin_ns = fake_nvml.now_ns()

        _, after, later = details_after(source, fake_nvml, 6.0, 6.0)

        assert after.nvlink_transmitted_bytes_per_second is None
        assert later.nvlink_transmitted_bytes_per_second == pytest.approx(1800 * MIB)


class TestTheCallForCounters:
    def test_has_room_for_one_entry_more_than_it_asks_for(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.control.touches_one_field_more = 1
        source = open_at_a_standstill(fake_nvml, nvml_options(on=["nvlink", "pcie"]))

        *_, last = details_after(source, fake_nvml, 6.0)

        assert pcie(last) == pytest.approx((1 * MIB, 2 * MIB))

    def test_is_one_for_all(self, fake_nvml: FakeNvml) -> None:
        library = NvmlLibrary()
        handle = library.handle_by_index(0) or 0
        links = LinkRates(
            {"nvlink", "pcie"}, FieldCalls(library), handle, time.monotonic_ns, Refusals()
        )

        links.read_counters()

        assert fake_nvml.calls(COUNTED) == 1

    def test_is_not_made_where_no_rate_is_wanted(self, fake_nvml: FakeNvml) -> None:
        source = open_at_a_standstill(fake_nvml)
        details_after(source, fake_nvml, 6.0)

        assert fake_nvml.calls(COUNTED) == fake_nvml.calls(MEASURED) == 0


def a_counter(most_bytes_per_second: int, refuse: Refusals) -> ByteCounter:
    return ByteCounter(NvmlCounter("rate", 0, 0, 1, most_bytes_per_second, False), refuse)


class TestAByteCounter:
    @given(st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.integers(-2, 100)), max_size=40))
    def test_gives_no_rate_below_zero_or_beyond_what_a_link_can_carry(
        self, readings: list[tuple[int, int]]
    ) -> None:
        counter, now_ns = a_counter(10**12, Refusals()), NS_PER_S
        for count, wait_s in readings:
            now_ns += wait_s * NS_PER_S
            rate = counter.rate(count, now_ns)

            assert rate is None or 0.0 <= rate <= 1e12

    def test_that_is_refused_once_is_counted(self) -> None:
        refused = Refusals()
        counter = a_counter(10, refused)

        rates = [counter.rate(count, at_s * NS_PER_S) for at_s, count in enumerate((0, 100, 105))]

        assert rates == [None, None, 5.0]
        assert refused.count == 1
