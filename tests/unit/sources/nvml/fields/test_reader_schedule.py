"""Specification of a field's schedule: an answer holds for as long as its field's period says."""

from __future__ import annotations

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.fields.latest_values import holds_for_ns
from gpumon.sources.nvml.fields.reader import FieldSchedule, Surroundings
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS
from tests.builders_nvml import Refusals


def test_an_answer_holds_no_longer_than_its_field_is_asked_for(library: NvmlLibrary) -> None:
    now_ns, period_ns = 1_000 * NS_PER_S, 5 * NS_PER_S
    around = Surroundings(
        options=DEFAULT_OPTIONS,
        monotonic_ns=lambda: now_ns,
        period_ns=NS_PER_S,
        slow_period_ns=period_ns,
        after_reading=lambda run: run(),
        refuse=Refusals(),
    )
    schedule = FieldSchedule(around)
    schedule.add("power", FieldCalls(library), lambda _: {"power_watts": 97.0})

    schedule.read_due()

    until_ns = now_ns + holds_for_ns(period_ns)
    assert schedule.latest.at(until_ns - 1) == {"power_watts": 97.0}
    assert schedule.latest.at(until_ns) == {}
