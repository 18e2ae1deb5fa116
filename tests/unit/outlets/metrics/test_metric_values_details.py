"""Specification of a board's details in /metrics: what it answers, while it answers."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.board.driver_codes import THROTTLE_REASONS
from gpumon.core.sample import ActivitySample, GpuDetails
from gpumon.core.state import GpuState, MonitorState
from gpumon.outlets.metrics.metric_table import METRICS
from gpumon.outlets.metrics.metric_values import MAX_XIDS
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders_state import (
    STARVED_UUID,
    S,
    StoppedClock,
    detailed_gpu,
    healthy_gpu,
    monitor_state,
)

DETAILS = {spec.name for spec in METRICS if spec.group == "gpu_details"}
"""Families of what a board says of itself."""


def scraped(state: MonitorState, *, ticks: int = 1, later_s: int = 0) -> list[str]:
    """The lines of a scrape, so long after the last of some ticks."""
    clock = StoppedClock()
    exporter = MetricsExporter(clock=clock, version="0")
    for _ in range(ticks):
        exporter.publish(state)
    clock.now_ns += later_s * S
    return exporter.render()[0].decode().splitlines()


def of(family: str, lines: list[str]) -> dict[str, float]:
    """Values of a family, by its labels as text."""
    series = (line for line in lines if line.startswith(f"{family}{{"))
    return {
        labels.removeprefix(family): float(value)
        for labels, _, value in (line.rpartition(" ") for line in series)
    }


def with_latest(**changes: Any) -> GpuState:
    gpu = detailed_gpu()
    assert gpu.latest is not None
    return gpu._replace(latest=gpu.latest._replace(**changes))


class TestThrottling:
    NAME = "gpumon_gpu_throttled"

    def test_has_a_series_for_every_reason_also_for_those_that_are_off(self) -> None:
        told = of(self.NAME, scraped(monitor_state(gpus=(detailed_gpu(),))))

        assert len(told) == len(THROTTLE_REASONS) == 8
        assert [labels for labels, now in told.items() if now] == [
            f'{{reason="sw_power_cap",uuid="{STARVED_UUID}"}}'
        ]

    def test_has_none_where_the_board_does_not_answer(self) -> None:
        silent = with_latest(details=GpuDetails(read_at_ns=1))

        assert of(self.NAME, scraped(monitor_state(gpus=(silent,)))) == {}


class TestXidErrors:
    NAME = "gpumon_gpu_xid_errors_total"

    def test_are_counted_by_gpu_and_number(self) -> None:
        told = of(self.NAME, scraped(monitor_state(gpus=(detailed_gpu(),))))

        assert told == {
            f'{{uuid="{STARVED_UUID}",xid="31"}}': 2.0,
            f'{{uuid="{STARVED_UUID}",xid="79"}}': 1.0,
        }

    def test_are_capped_and_those_left_out_counted_once_a_tick(self) -> None:
        many = detailed_gpu(xid_errors=tuple((xid, 1) for xid in range(MAX_XIDS + 5)))

        lines = scraped(monitor_state(gpus=(many,)), ticks=3)

        assert len(of(self.NAME, lines)) == MAX_XIDS
        dropped = of("gpumon_label_sets_dropped_total", lines)
        assert dropped[f'{{family="{self.NAME}"}}'] == 3 * 5

    def test_stay_where_the_gpu_is_lost_and_go_where_it_was_taken_out(self) -> None:
        lost = detailed_gpu(present=False, error="GPU is lost")

        assert len(of(self.NAME, scraped(monitor_state(gpus=(lost,))))) == 2
        taken_out = monitor_state(gpus=(lost._replace(listed=False),))
        assert of(self.NAME, scraped(taken_out)) == {}


class TestDetails:
    def test_of_a_board_that_answers_none_have_no_series(self) -> None:
        silent = with_latest(details=GpuDetails(read_at_ns=1), activity=ActivitySample(1, 2))
        silent = silent._replace(xid_errors=())
        for gpu in (silent, healthy_gpu()):
            lines = scraped(monitor_state(gpus=(gpu,)))

            assert [name for name in DETAILS if of(name, lines)] == []

    @pytest.mark.parametrize("name", sorted(DETAILS - {TestXidErrors.NAME}))
    def test_go_with_the_gpu(self, name: str) -> None:
        well = monitor_state(gpus=(detailed_gpu(),))
        lost = monitor_state(gpus=(detailed_gpu(present=False, error="GPU is lost"),))

        assert of(name, scraped(well)) != {}
        assert of(name, scraped(lost)) == {}
        assert of(name, scraped(well, later_s=3)) == {}


class TestCallsOfTheDriver:
    def test_are_counted_for_each_function_beside_its_seconds(self) -> None:
        lines = scraped(monitor_state())

        calls, spent = (
            of("gpumon_nvml_calls_total", lines),
            of("gpumon_nvml_call_seconds_total", lines),
        )
        assert calls == {
            '{function="nvmlDeviceGetSamples"}': 200.0,
            '{function="nvmlDeviceGetMemoryInfo"}': 40.0,
        }
        assert set(calls) == set(spent)

    def test_are_capped_as_their_seconds_are(self) -> None:
        functions = [f"nvmlFunction{number}" for number in range(300)]
        state = monitor_state(
            call_seconds=tuple((name, 0.5) for name in functions),
            call_counts=tuple((name, 2) for name in functions),
        )

        lines = scraped(state)

        assert len(of("gpumon_nvml_calls_total", lines)) == 256
        assert (
            of("gpumon_nvml_calls_total", lines).keys()
            == of("gpumon_nvml_call_seconds_total", lines).keys()
        )


class TestErrorsOfTheDriver:
    def test_are_counted_by_function_and_code(self) -> None:
        errors = (("nvmlDeviceGetPowerUsage", 999, 3), ("nvmlDeviceGetPowerUsage", 15, 1))

        lines = scraped(monitor_state(call_errors=errors))

        assert of("gpumon_nvml_errors_total", lines) == {
            '{code="999",function="nvmlDeviceGetPowerUsage"}': 3.0,
            '{code="15",function="nvmlDeviceGetPowerUsage"}': 1.0,
        }

    def test_are_capped_and_what_is_left_out_is_counted(self) -> None:
        errors = tuple(("nvmlDeviceGetPowerUsage", code, 1) for code in range(300))

        lines = scraped(monitor_state(call_errors=errors))

        left_out = of("gpumon_label_sets_dropped_total", lines)
        assert len(of("gpumon_nvml_errors_total", lines)) == 256
        assert left_out['{family="gpumon_nvml_errors_total"}'] == 44.0
