"""What is made of each number of the field table where the driver answers what no board can mean.

As 2^63, as -1 and as the bits of NaN, in the width that the number has. By a clock that the test
moves.
"""

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
from tests.builders.nvml import NOBODYS_PID, DriverClock, Refusals
from tests.fakenvml import codes

PLACES = {
    "utilization_ratio": "rates_percent",
    "memory_used_bytes": "memory_used",
    "power_watts": "power_mw",
    "temperature_celsius": "temperature_c",
    "sm_clock_hertz": "sm_clock_mhz",
    "memory_clock_hertz": "mem_clock_mhz",
    "sm_clock_max_hertz": "max_sm_clock_mhz",
    "energy_joules": "energy_mj",
    "power_limit_watts": "enforced_limit_mw",
    "performance_state": "performance_state",
    "throttle_reasons": "throttle_reasons",
    "ecc_corrected_errors": "ecc_corrected",
    "ecc_uncorrected_errors": "ecc_uncorrected",
    "persistence_mode": "persistence_mode",
    "fan_speed_ratio": "fan_percent",
    "encoder_ratio": "encoder_percent",
    "decoder_ratio": "decoder_percent",
}
"""Where the fake has each number of the table. PCIe rates, and what the driver counts and GPM says,
are in the files beside this one."""
ELSEWHERE = {"pcie_transmitted_bytes_per_second", "pcie_received_bytes_per_second"}
WIDE = {"memory_used", "energy_mj", "throttle_reasons", "ecc_corrected", "ecc_uncorrected"}
OF_64_BITS = {"2^63": 1 << 63, "-1": (1 << 64) - 1, "NaN": 0x7FF8 << 48, "2^62": 1 << 62}
OF_32_BITS = {"2^31": 1 << 31, "-1": (1 << 32) - 2, "NaN": 0x7FC0 << 16}
"""Of the utilisation, the fake takes 2^32 - 1 for none of ours."""
CASES = [
    pytest.param(attribute, place, value, id=f"{attribute} {name}")
    for attribute, place in PLACES.items()
    for name, value in (OF_64_BITS if place in WIDE else OF_32_BITS).items()
]
MOST_OF_ANY_METRIC = 1e12
"""Bytes, hertz, joules and seconds of a test all lie below."""


def test_each_number_of_the_table_is_tried() -> None:
    listed = {number.attribute for field in NVML_FIELDS for number in field.numbers}

    assert listed == {*PLACES, *ELSEWHERE}


@pytest.mark.parametrize(("attribute", "place", "value"), CASES)
def test_is_no_answer_and_an_error_and_takes_nothing_else_along(
    fake: Fake, attribute: str, place: str, value: int
) -> None:
    fake.keep_busy(FIRST, SECOND)
    fake.wave(FIRST, period_s=4.0, busy_ratio=0.5)
    if attribute in ("utilization_ratio", "power_watts"):
        fake.fail(DRAIN, codes.NOT_SUPPORTED, gpu=FIRST)
    if place == "energy_mj":
        value -= 10**9  # which the fake adds to while a test lasts
    sane = getattr(fake.gpu(FIRST), place)
    setattr(fake.gpu(FIRST), place, value)
    story = fake.story(on=[field.name for field in NVML_FIELDS if field.opt_in])
    story.tick(10)
    before = story.state.collectors[0].errors_total

    story.tick(10)

    assert story.state.collectors[0].errors_total > before
    missing = {attribute}
    if attribute == "utilization_ratio":
        assert story.observed_s(FIRST) == 0, "nothing is known of that time"
    else:
        assert story.observed_s(FIRST) == pytest.approx(20, abs=1)
        assert story.idle_ns(FIRST) / NS_PER_S == pytest.approx(10, abs=2)
    assert known(story, SECOND) - known(story, FIRST) == missing
    assert story.sample(FIRST).error is None
    assert story.observed_s(SECOND) == pytest.approx(20, abs=1)
    assert metrics_are_possible(story)

    setattr(fake.gpu(FIRST), place, sane)
    story.tick(10)
    assert known(story, SECOND) == known(story, FIRST)


@pytest.mark.parametrize("value", [0, *OF_64_BITS.values()])
def test_a_capacity_that_no_board_has_is_none_and_leaves_what_is_used(
    fake: Fake, value: int
) -> None:
    fake.gpu(FIRST).memory_total = value
    story = fake.story(after_s=6)

    assert story.sample(FIRST).device.memory_capacity_bytes is None
    assert story.sample(SECOND).device.memory_capacity_bytes is not None
    assert (story.sample(FIRST).memory_used_bytes is None) is (value == 0), "none of nothing"
    assert story.state.collectors[0].errors_total > 0
    assert metrics_are_possible(story)


@pytest.mark.parametrize("value", [OF_64_BITS["2^63"], OF_64_BITS["NaN"], OF_64_BITS["2^62"]])
def test_a_process_keeps_its_place_without_the_memory_that_it_cannot_have(
    fake: Fake, value: int
) -> None:
    fake.run(FIRST, NOBODYS_PID, memory_bytes=value)
    story = fake.story(after_s=6)

    (process,) = story.sample(FIRST).processes or ()
    assert (process.pid, process.memory_used_bytes) == (NOBODYS_PID, None)
    assert story.state.collectors[0].errors_total > 0


@pytest.mark.parametrize("value", [*OF_64_BITS.values()])
def test_a_byte_counter_gives_no_rate_of_a_count_that_no_link_can_have(value: int) -> None:
    refused = Refusals()
    (counter, *_) = field_called("pcie").counters
    counted = ByteCounter(counter, refused)

    rates = [counted.rate(count, at_s * NS_PER_S) for at_s, count in enumerate((1, value, 1001))]

    assert rates[:2] == [None, None]
    assert refused.count == 1


def known(story: DriverStory, slot: int) -> set[str]:
    """The numbers that a GPU has an answer for."""
    return answered(story.sample(slot)) & {*PLACES}


def metrics_are_possible(story: DriverStory) -> bool:
    """Whether each value of ``/metrics`` is one that can be; with ``state.json`` it is alike."""
    exporter = MetricsExporter(clock=DriverClock(story.fake), version="0")
    exporter.publish(story.state)
    text = exporter.render()[0].decode()
    samples = [
        sample
        for family in text_string_to_metric_families(re.sub(r"# EOF\n?", "", text))
        for sample in family.samples
        if not sample.name.endswith("_timestamp_seconds")
    ]
    assert len(samples) > 100
    return all(
        math.isfinite(sample.value) and 0 <= sample.value < MOST_OF_ANY_METRIC
        for sample in samples
        if sample.labels.get("le") != "+Inf"
    )
