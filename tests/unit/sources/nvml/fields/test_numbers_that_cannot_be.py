"""Tests of numbers that no board can mean: no answer, counted, and nothing else is affected."""

from __future__ import annotations

import math
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpumon.core.clock import NS_PER_S
from gpumon.outlets.metrics.prometheus import MetricsExporter
from gpumon.sources.nvml.fields.links import ByteCounter
from gpumon.sources.nvml.fields.table import NVML_FIELDS, field_called
from tests.builders.driver import DriverStory, Fake, answered
from tests.builders.driver_faults import DRAIN, FIRST, SECOND
from tests.builders.nvml import UNUSED_PID, DriverClock, Refusals
from tests.fakenvml import codes

ALL_ONES, NAN_BITS = (1 << 64) - 1, 0x7FF8 << 48
CASES = [
    ("utilization_ratio", "rates_percent", 101),
    ("memory_used_bytes", "memory_used", 1 << 50),
    ("power_watts", "power_mw", 0xFFFF_FFFF),
    ("temperature_celsius", "temperature_c", 255),
    ("temperature_celsius", "temperature_c", 0xFFFF_FFFF),
    ("sm_clock_hertz", "sm_clock_mhz", 0xFFFF_FFFF),
    ("memory_clock_hertz", "mem_clock_mhz", 0xFFFF_FFFF),
    ("sm_clock_max_hertz", "max_sm_clock_mhz", 0),
    ("energy_joules", "energy_mj", 1 << 63),
    ("power_limit_watts", "enforced_limit_mw", 0),
    ("power_limit_watts", "enforced_limit_mw", 0xFFFF_FFFF),
    ("performance_state", "performance_state", 99),
    ("throttle_reasons", "throttle_reasons", ALL_ONES),
    ("ecc_corrected_errors", "ecc_corrected", ALL_ONES),
    ("ecc_uncorrected_errors", "ecc_uncorrected", NAN_BITS),
    ("persistence_mode", "persistence_mode", 7),
    ("fan_speed_ratio", "fan_percent", 0x7FC0_0000),
    ("encoder_ratio", "encoder_percent", 101),
    ("decoder_ratio", "decoder_percent", 0xFFFF_FFFF),
]
"""A number of the table, its field in the fake, and a value. ``test_links`` tests PCIe rates."""
OPT_INS = [field.name for field in NVML_FIELDS if field.opt_in]


def test_each_number_of_the_table_is_tried() -> None:
    numbers = {number.attribute for field in NVML_FIELDS for number in field.numbers}

    tried = {attribute for attribute, _, _ in CASES}
    assert {one for one in numbers if not one.startswith("pcie_")} == tried


@pytest.mark.parametrize(("attribute", "place", "value"), CASES)
def test_is_no_answer_and_an_error_and_affects_nothing_else(
    fake: Fake, attribute: str, place: str, value: int
) -> None:
    fake.keep_busy(SECOND)
    fake.wave(FIRST, period_s=4.0, busy_ratio=0.5)
    if attribute in ("utilization_ratio", "power_watts"):
        fake.fail(DRAIN, codes.NOT_SUPPORTED, gpu=FIRST)
    valid = getattr(fake.gpu(FIRST), place)
    setattr(fake.gpu(FIRST), place, value)
    story = fake.story(on=OPT_INS, after_s=10)
    before = story.state.collectors[0].errors_total

    story.tick(30)

    assert story.state.collectors[0].errors_total > before
    if attribute == "utilization_ratio":
        assert story.observed_s(FIRST) == 0
    else:
        assert story.idle_ns(FIRST) / NS_PER_S == pytest.approx(20, abs=2)
    missing = answered(story.sample(SECOND)) - answered(story.sample(FIRST))
    same_figure = {"power_now_watts", "power_now_at_ns"} if attribute == "power_watts" else set()
    assert missing - {"processes", "processes_at_ns"} == {attribute, *same_figure}
    assert story.sample(FIRST).error is None
    assert metrics_are_possible(story)

    setattr(fake.gpu(FIRST), place, valid)
    story.tick(30)
    assert attribute in answered(story.sample(FIRST))


@pytest.mark.parametrize(
    ("place", "value", "attribute", "reported"),
    [
        ("performance_state", 15, "performance_state", 15),  # the slowest
        ("performance_state", 32, "performance_state", None),  # the driver's "unknown"
        ("fan_percent", 130, "fan_speed_ratio", 1.3),  # above the maximum noise level
    ],
)
def test_the_largest_valid_number_is_reported(
    fake: Fake, place: str, value: int, attribute: str, reported: object
) -> None:
    setattr(fake.gpu(FIRST), place, value)
    story = fake.story(on=["fan"])

    assert getattr(story.details(FIRST), attribute) == reported
    assert story.frame.rejected == 0


@pytest.mark.parametrize("value", [0, ALL_ONES])
def test_an_impossible_capacity_is_none_and_leaves_the_used_memory(fake: Fake, value: int) -> None:
    fake.gpu(FIRST).memory_total = value
    story = fake.story(after_s=6)

    assert story.sample(FIRST).device.memory_capacity_bytes is None
    assert (story.sample(FIRST).memory_used_bytes is None) is (value == 0)
    assert story.state.collectors[0].errors_total > 0


def test_a_process_with_impossible_memory_is_still_listed(fake: Fake) -> None:
    fake.run(FIRST, UNUSED_PID, memory_bytes=1 << 62)
    story = fake.story(after_s=6)

    (process,) = story.sample(FIRST).processes or ()
    assert (process.pid, process.memory_used_bytes) == (UNUSED_PID, None)
    assert story.state.collectors[0].errors_total > 0


def test_a_byte_counter_gives_no_rate_of_an_impossible_count() -> None:
    refused = Refusals()
    (counter, *_) = field_called("pcie").counters
    counted = ByteCounter(counter, refused)

    rates = [counted.rate(count, at_s * NS_PER_S) for at_s, count in enumerate((1, ALL_ONES, 1001))]

    assert rates[:2] == [None, None]
    assert refused.count == 1


def metrics_are_possible(story: DriverStory) -> bool:
    """Whether each value of ``/metrics`` is finite and below any real quantity of a test."""
    exporter = MetricsExporter(clock=DriverClock(story.fake), version="0")
    exporter.publish(story.state)
    text = exporter.render().body.decode()
    return all(
        math.isfinite(sample.value) and 0 <= sample.value < 1e12
        for family in text_string_to_metric_families(re.sub(r"# EOF\n?", "", text))
        for sample in family.samples
        if not sample.name.endswith("_timestamp_seconds") and sample.labels.get("le") != "+Inf"
    )
