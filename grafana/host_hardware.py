"""Panels of the host dashboard on boards and on the daemon: temperature, power, clocks, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from grafana_foundation_sdk.builders import statetimeline, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

from grafana import host_queries as queries
from grafana.parts import (
    CLOCK_WORDS,
    GPUS,
    HALF,
    NAMED_GPU,
    NO_ANSWER,
    THIRD,
    USE_WORDS,
    curves,
    fixed,
    over_time,
    stacked,
    thresholds,
    worded,
)

_NO_FIELD: Final = "'No data' here alone: no selected board reports this."
_DASHED: Final = model.DynamicConfigValue(
    id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 6]}
)
_CLOCKS: Final = (
    ("free", "green"),
    ("configured", "blue"),
    ("power limit", "yellow"),
    ("heat", "orange"),
    ("the board itself", "red"),
)


def _states(title: str, states: tuple[tuple[str, str], ...]) -> statetimeline.Panel:
    """Coloured bars of states, numbered from 0."""
    texts = {
        str(number): model.ValueMappingResult(text=text, color=colour)
        for number, (text, colour) in enumerate(states)
    }
    return (
        statetimeline.Panel()
        .title(title)
        .height(8)
        .span(HALF)
        .unit("none")
        .mappings([model.ValueMap(options=texts)])
        .thresholds(thresholds((None, states[0][1])))
        .show_value(common.VisibilityMode.NEVER)
    )


# -- how full GPUs are while they are busy, and what holds them back --------------


def filling() -> timeseries.Panel:
    """Activity of each GPU."""
    panel = (
        curves("How full the GPUs are", "percentunit")
        .max(1)
        .description(
            "Active multiprocessors, active tensor cores, and memory bandwidth in use (GPM, Hopper "
            "and later). A GPU can be busy all the time while little of it works: below half of "
            "the multiprocessors, and with memory bandwidth to spare, try a larger batch and "
            f"fewer, larger kernels. An unused GPU is at 0 %. {_NO_FIELD}"
        )
    )
    for ref, (what, expr) in zip("ABC", queries.FILLING.items(), strict=True):
        panel = panel.with_target(over_time(expr, f"{NAMED_GPU} {what}", ref))
    return panel


def power_share() -> timeseries.Panel:
    """Power as a share of its limit."""
    return (
        curves("Power against its limit", "percentunit")
        .description(
            "Power draw of each board as a share of its enforced limit. A busy GPU that draws less "
            "than half of it at full clock is probably not full; activity, beside this, is the "
            f"better evidence. {_NO_FIELD}"
        )
        .with_target(over_time(queries.POWER_SHARE, NAMED_GPU, "A"))
    )


def held_down() -> statetimeline.Panel:
    """Reasons for reduced clocks, one row for each GPU."""
    return (
        _states("What holds the clocks down", _CLOCKS)
        .description(
            "The worst reason why a board reduces its clocks. The power limit at full load is "
            "normal; for heat and the board itself (hardware slowdown, power brake), check "
            f"cooling and power supply. {_NO_FIELD}"
        )
        .with_target(over_time(queries.HELD_DOWN, NAMED_GPU, "A"))
    )


def throttled() -> timeseries.Panel:
    """Time with reduced clocks, by reason."""
    panel = (
        stacked(curves("Clocks held down, by reason", "none", GPUS))
        .height(8)
        .decimals(2)
        .description(
            "GPUs with reduced clocks, by reason: 1 is one GPU all the time. It counts time, so "
            "that short moments between scrapes are included; several reasons may hold at once. "
            f"'none': no clock was reduced. {NO_ANSWER}"
        )
        .with_target(over_time(queries.THROTTLED, "{{reason}}", "A"))
    )
    as_beside = {"sw_power_cap": "yellow", "sw_thermal_slowdown": "orange", "hw_slowdown": "red"}
    return worded(panel, {"none": "text", **as_beside}, CLOCK_WORDS)


# -- the boards -------------------------------------------------------------------


def temperature() -> timeseries.Panel:
    """Temperature of each board."""
    return (
        curves("Temperature", "celsius")
        .span(THIRD)
        .description(
            "Core temperature. Most data centre boards reduce their clocks from about 85 °C; the "
            f"panel above shows whether they do. {_NO_FIELD}"
        )
        .with_target(over_time(queries.GAUGES["temperature_celsius"], NAMED_GPU, "A"))
    )


def power() -> timeseries.Panel:
    """Power of each board, and its limit."""
    return (
        curves("Power", "watt")
        .span(THIRD)
        .description(f"Power draw of each board and, dashed, its enforced limit. {_NO_FIELD}")
        .with_target(over_time(queries.GAUGES["power_watts"], NAMED_GPU, "A"))
        .with_target(over_time(queries.GAUGES["power_limit_watts"], f"{NAMED_GPU} limit", "B"))
        .override_by_regexp(".* limit", [_DASHED])
    )


def use_power() -> timeseries.Panel:
    """Power by what the time was used for."""
    panel = (
        stacked(curves("Power of busy, lost and unused time", "watt"))
        .span(THIRD)
        .description(
            "Mean power of the selected boards over five minutes, by what their time was used for: "
            f"busy, lost (in use and idle), or not in use. {_NO_FIELD}"
        )
        .with_target(over_time(queries.USE_POWER, "{{use}}", "A"))
    )
    return worded(panel, {"busy": "green", "lost": "red", "not_in_use": "#5a5a5a"}, USE_WORDS)


def memory() -> timeseries.Panel:
    """Memory of each board."""
    return (
        curves("Memory in use", "bytes")
        .span(THIRD)
        .description(f"Device memory in use and, dashed, its size. {_NO_FIELD}")
        .with_target(over_time(queries.GAUGES["memory_used_bytes"], NAMED_GPU, "A"))
        .with_target(over_time(queries.GAUGES["memory_capacity_bytes"], f"{NAMED_GPU} size", "B"))
        .override_by_regexp(".* size", [_DASHED])
    )


def clocks() -> timeseries.Panel:
    """Clocks of each board."""
    return (
        curves("Clocks", "hertz")
        .span(THIRD)
        .description(
            "Clock of the streaming multiprocessors, its highest value dashed, and the clock of "
            f"the memory. An idle board lowers its clocks by itself. {_NO_FIELD}"
        )
        .with_target(over_time(queries.GAUGES["sm_clock_hertz"], f"{NAMED_GPU} SM", "A"))
        .with_target(over_time(queries.GAUGES["sm_clock_max_hertz"], f"{NAMED_GPU} SM limit", "B"))
        .with_target(over_time(queries.GAUGES["memory_clock_hertz"], f"{NAMED_GPU} memory", "C"))
        .override_by_regexp(".* limit", [_DASHED])
    )


def ecc_errors() -> timeseries.Panel:
    """Memory errors of each board."""
    return (
        curves("Memory errors (ECC)", "none", "errors")
        .span(THIRD)
        .decimals(0)
        .description(
            "Errors in device memory since the driver was loaded. Corrected ones are harmless "
            "unless they are many; the runbook of GpumonGPUEccErrors says what to do about "
            f"others. 'not reported': the board has no ECC, or it is off. {NO_ANSWER}"
        )
        .with_target(over_time(queries.ECC_ERRORS, f"{NAMED_GPU} {{{{kind}}}}", "A"))
        .override_by_regexp(".*not reported", [fixed("text")])
    )


def xid_errors() -> timeseries.Panel:
    """Errors that the driver reported."""
    return (
        curves("XID errors", "none", "errors")
        .height(8)
        .decimals(0)
        .description(
            "Errors that the driver reported while gpumon was running, by XID. XID 13, 31, 43 and "
            "45 mostly come from a program, others from the board or its links; the runbook of "
            f"GpumonGPUXidErrors says what to do. A line 'XID none' at 0: none. {NO_ANSWER}"
        )
        .with_target(over_time(queries.XID_ERRORS, f"{NAMED_GPU} XID {{{{xid}}}}", "A"))
        .override_by_regexp(".*XID none", [fixed("text")])
    )


# -- the daemon -------------------------------------------------------------------


def collectors() -> statetimeline.Panel:
    """Which part of the daemon cannot read everything."""
    return (
        _states("Collectors", (("failing", "red"), ("reads everything", "green")))
        .description(
            "Parts of the daemon that read, one row each. Red: something could not be read, and "
            f"its series are missing; docs/driver-trouble.md helps with nvml. {NO_ANSWER}"
        )
        .with_target(over_time(queries.COLLECTORS, "{{collector}}", "A"))
    )


def collector_seconds() -> timeseries.Panel:
    """How long the collectors take."""
    return (
        curves("Time of the last read", "s")
        .height(8)
        .description(
            "Time that the last read of each collector took. Seconds mean a slow driver: samples "
            f"are missed then. {NO_ANSWER}"
        )
        .with_target(over_time(queries.COLLECTOR_SECONDS, "{{collector}}", "A"))
    )


def ticks_missed() -> timeseries.Panel:
    """How many ticks had no frame."""
    return (
        curves("Ticks without samples", "percentunit")
        .height(8)
        .description(
            "Share of ticks that were late, hung or failed. Time without samples is not observed, "
            f"and never counted as idle. 0 %: all were on time. {NO_ANSWER}"
        )
        .with_target(over_time(queries.TICKS_MISSED, "missed", "A"))
    )


ROWS: Final[dict[str, tuple[Callable[[], Any], ...]]] = {
    "How full the GPUs are, and what slows them down": (
        filling, power_share, held_down, throttled,
    ),
    "The boards": (temperature, power, use_power, memory, clocks, ecc_errors),
    "Errors, and the daemon": (xid_errors, collectors, collector_seconds, ticks_missed),
}  # fmt: skip
"""Panels by title of their row."""
