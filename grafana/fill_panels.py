"""The panels on how full GPUs are while they are busy, and on what holds them back."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import statetimeline, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

from grafana import queries
from grafana.panels import curves, fixed, query, thresholds

_HALF: Final = 12
_STATES: Final = (
    ("free", "green"),
    ("set by somebody", "blue"),
    ("power limit", "yellow"),
    ("heat", "orange"),
    ("the board itself", "red"),
)


def filling() -> timeseries.Panel:
    """How much of each GPU works."""
    panel = (
        curves(7, "How full the GPUs are", "percentunit")
        .max(1)
        .description(
            "Share of the multiprocessors that have work, share of the time in which the tensor "
            "cores work, and memory bandwidth in use (GPM, Hopper and later). A GPU can be busy "
            "all the time and yet little of it works: below half of the multiprocessors, and with "
            "memory bandwidth to spare, try a larger batch and fewer, larger kernels. "
            "'No data': no GPU here tells."
        )
    )
    for ref, (what, expr) in zip("ABC", queries.FILLING.items(), strict=True):
        panel = panel.with_target(query(expr, f"GPU {{{{gpu}}}} {{{{name}}}} {what}", ref))
    return panel


def power() -> timeseries.Panel:
    """How near each GPU is to its power limit."""
    return (
        curves(8, "Power against its limit", "percentunit")
        .description(
            "Power draw of each board, of the limit in force. A busy GPU that draws less than half "
            "of it at full clock is probably not full; where activity is told beside this, that is "
            "the better evidence."
        )
        .with_target(query(queries.POWER_SHARE, "GPU {{gpu}} {{name}}", "A"))
    )


def held_down() -> statetimeline.Panel:
    """Why the clocks are held down, one row for each GPU."""
    return (
        statetimeline.Panel()
        .id(9)
        .title("What holds the clocks down")
        .description(
            "The gravest reason for which a board holds its clocks down. The power limit at full "
            "load is as it should be; heat and the board itself (hardware slowdown, power brake) "
            "want a look at cooling and power supply. Grey: not known."
        )
        .height(8)
        .span(_HALF)
        .unit("none")
        .mappings(
            [
                model.ValueMap(
                    options={
                        str(number): model.ValueMappingResult(text=text, color=colour)
                        for number, (text, colour) in enumerate(_STATES)
                    }
                )
            ]
        )
        .thresholds(thresholds((None, "green")))
        .show_value(common.VisibilityMode.NEVER)
        .with_target(query(queries.HELD_DOWN, "GPU {{gpu}} {{name}}", "A"))
    )


def xid_errors() -> timeseries.Panel:
    """Errors that the driver reported."""
    return (
        curves(10, "XID errors", "none")
        .height(8)
        .decimals(0)
        .description(
            "Errors that the driver reported while gpumon listened, counted by XID: each step is "
            "one more. XID 13, 31, 43 and 45 mostly come from a program, others from the board or "
            "its links; the runbook of GpumonGPUXidErrors says what to do. A line at 0: none."
        )
        .with_target(query(queries.XID_ERRORS, "GPU {{gpu}} {{name}} XID {{xid}}", "A"))
        .override_by_regexp(".*XID none", [fixed("text")])
    )
