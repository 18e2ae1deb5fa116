"""The panels of the dashboard: lost time, how full GPUs are, and what slows them down."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana import queries

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
_WIDE: Final = 24
_HALF: Final = 12

_NOT_IN_USE: Final = model.ValueMap(
    options={"-1": model.ValueMappingResult(text="not in use", color="text")}
)
_NO_PAUSE: Final = model.SpecialValueMap(
    options=model.DashboardSpecialValueMapOptions(
        match=model.SpecialValueMatch.NULL_AND_NAN,
        result=model.ValueMappingResult(text="none", color="text"),
    )
)


def _query(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query over the time shown."""
    return prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref).datasource(SOURCE)


def _instant(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query for one value over the whole time shown."""
    return _query(expr, legend, ref).instant()


def _thresholds(*steps: tuple[float | None, str]) -> build.ThresholdsConfig:
    """Colours by lower bound; ``None`` is minus infinity."""
    return (
        build.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _property(key: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=key, value=value)


def _fixed(colour: str) -> model.DynamicConfigValue:
    return _property("color", {"mode": "fixed", "fixedColor": colour})


def _figures(panel_id: int, title: str, unit: str) -> stat.Panel:
    """Large present values with their names."""
    return (
        stat.Panel()
        .id(panel_id)
        .title(title)
        .height(8)
        .unit(unit)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
        .reduce_options(options.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def lost_share() -> stat.Panel:
    """The loss over the time shown."""
    return (
        _figures(1, "GPU time lost", "percentunit")
        .description(
            "Share of in-use GPU time in which no kernel ran, over the time shown. Starved: "
            "idle while a tagged run waited for input. Suspected: untagged pauses that were "
            "probably waits for input. GPU time: the loss of all GPUs together, in seconds. "
            "'not in use': the GPUs answer, but no job runs on them. 'No data': nothing is "
            "scraped."
        )
        .span(16)
        .decimals(1)
        .mappings([_NOT_IN_USE])
        .thresholds(_thresholds((None, "green"), (0.05, "orange"), (0.2, "red")))  # as the verdict
        .color_mode(common.BigValueColorMode.VALUE)
        .with_target(_instant(queries.LOST_SHARE, "lost", "A"))
        .with_target(_instant(queries.STARVED_SHARE, "starved", "B"))
        .with_target(_instant(queries.SUSPECTED_SHARE, "suspected", "C"))
        .with_target(_instant(queries.LOST_SECONDS, "GPU time", "D"))
        .override_by_name("GPU time", [_property("unit", "s"), _fixed("text")])
    )


def culprit() -> stat.Panel:
    """The cause to look at first."""
    return (
        _figures(2, "Main culprit", "s")
        .description(
            "The cause with the most lost GPU time over the time shown, and how much it took, in "
            "seconds of GPU time. 'unknown' means that no run was tagged."
        )
        .span(8)
        .thresholds(_thresholds((None, "text")))
        .with_target(_instant(queries.CULPRIT, "{{cause}}", "A"))
    )


def _curves(panel_id: int, title: str, unit: str) -> timeseries.Panel:
    """Lines over the time shown, in half the width."""
    return (
        timeseries.Panel()
        .id(panel_id)
        .title(title)
        .height(9)
        .span(_HALF)
        .unit(unit)
        .min(0)
        .legend(
            options.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
        .tooltip(options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )


def _stacked(panel: timeseries.Panel) -> timeseries.Panel:
    return (
        panel.fill_opacity(70)
        .line_width(1)
        .stacking(options.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    )


def use_of_time() -> timeseries.Panel:
    """Busy, idle and starved time, adding up to 100 %."""
    panel = _stacked(_curves(3, "Where the GPU time went", "percentunit")).description(
        "Share of the time of all selected GPUs; the bands add up to 100 %. It uses time counters, "
        "so that no scrape interval hides a pause. Idle time appears once its cause is settled."
    )
    bands = (
        (queries.BUSY_BAND, "busy", "green"),
        (queries.STARVED_BAND, "starved", "red"),
        (queries.SUSPECTED_BAND, "suspected", "orange"),
        (queries.OTHER_LOSS_BAND, "other loss", "yellow"),
        (queries.NOT_IN_USE_BAND, "not in use", "#5a5a5a"),
    )
    for ref, (expr, name, colour) in zip("ABCDE", bands, strict=True):
        panel = panel.with_target(_query(expr, name, ref)).override_by_name(name, [_fixed(colour)])
    return panel.max(1)


def causes() -> timeseries.Panel:
    """Causes of the lost time."""
    return (
        _stacked(_curves(4, "What the lost time went to", "none"))
        .description(
            "GPUs lost to each cause, summed over the selected ones: 1 is one idle GPU. Time "
            "outside jobs is left out."
        )
        .decimals(2)
        .with_target(_query(queries.CAUSES, "{{cause}}", "A"))
        .override_by_name("input_wait", [_fixed("red")])
        .override_by_name("unknown", [_fixed("orange")])
        .override_by_name("nothing lost", [_fixed("text")])
    )


def reasons() -> timeseries.Panel:
    """Reasons of input waits."""
    return (
        _stacked(_curves(12, "Why batches are late", "none"))
        .description(
            "GPUs that wait for input, by reason: 1 is one idle GPU. cpu_bound: preprocessing; "
            "gil_bound: the GIL; disk_bound, network_bound, memory_pressure, latency_bound; "
            "unknown: no evidence. Together they are the band input_wait beside this. The runbook "
            "of GpumonGPUStarved says what to change first. 'no tagged wait': no tagged run waits."
        )
        .decimals(2)
        .with_target(_query(queries.REASONS, "{{reason}}", "A"))
        .override_by_name("unknown", [_fixed("orange")])
        .override_by_name("no tagged wait", [_fixed("text")])
    )


def gaps() -> timeseries.Panel:
    """Lengths of pauses."""
    return (
        _curves(5, "Length of the pauses", "s")
        .description(
            "Median and 95th percentile of the pauses between two bursts of work, in seconds, "
            "counted when a pause ends. Pauses shorter than the driver's sample (1/6 to 1 s) are "
            "invisible here; they lower the busy share. No line: no pause ended."
        )
        .with_target(_query(queries.GAP_MEDIAN, "GPU {{gpu}} {{name}} median", "A"))
        .with_target(_query(queries.GAP_P95, "GPU {{gpu}} {{name}} 95 %", "B"))
    )


_COLUMNS: Final = {
    "busy": ("Busy", "percentunit"),
    "starved": ("Starved", "percentunit"),
    "suspected": ("Suspected", "percentunit"),
    "lost": ("Lost", "s"),
    "gap": ("Pause 95 %", "s"),
    "memory": ("Memory", "percentunit"),
    "now": ("Starved now", "bool_yes_no"),
}
"""Heading and unit by key of the query."""


def _arrangement() -> list[model.DataTransformerConfig]:
    values = {f"Value #{key}": heading for key, (heading, _) in _COLUMNS.items()}
    names = {"instance": "Machine", "gpu": "GPU", "name": "Model", "uuid": "UUID", **values}
    arrange = {
        "excludeByName": {"Time": True, "job": True, "Value #info": True},
        "renameByName": names,
        "indexByName": {name: place for place, name in enumerate(names)},
    }
    return [
        model.DataTransformerConfig(id_val="merge", options={}),
        model.DataTransformerConfig(id_val="organize", options=arrange),
    ]


def per_gpu() -> table.Panel:
    """One row for each GPU."""
    panel = (
        table.Panel()
        .id(6)
        .title("Each GPU")
        .description(
            "Over the time shown: shares of observed time; Lost: in-use GPU time in seconds in "
            "which no kernel ran; Pause 95 %: 95th percentile of the pauses in seconds; Memory: "
            "present share in use; Starved now: 5 % of the last minute in use were."
        )
        .height(9)
        .span(_WIDE)
        .decimals(1)
        .transformations(_arrangement())
    )
    for key, expr in queries.TABLE.items():
        panel = panel.with_target(_instant(expr, "", key).format(PromQueryFormat.TABLE))
    for heading, unit in _COLUMNS.values():
        panel = panel.override_by_name(heading, [_property("unit", unit)])
    return panel.override_by_name(_COLUMNS["gap"][0], [_property("mappings", [_NO_PAUSE])])


# -- how full GPUs are while they are busy, and what holds them back --------------

_STATES: Final = (
    ("free", "green"),
    ("configured", "blue"),
    ("power limit", "yellow"),
    ("heat", "orange"),
    ("the board itself", "red"),
)


def filling() -> timeseries.Panel:
    """Activity of each GPU."""
    panel = (
        _curves(7, "How full the GPUs are", "percentunit")
        .max(1)
        .description(
            "Active multiprocessors, active tensor cores, and memory bandwidth in use (GPM, Hopper "
            "and later). A GPU can be busy all the time while little of it works: below half of "
            "the multiprocessors, and with memory bandwidth to spare, try a larger batch and "
            "fewer, larger kernels. 'No data': no GPU supports this."
        )
    )
    for ref, (what, expr) in zip("ABC", queries.FILLING.items(), strict=True):
        panel = panel.with_target(_query(expr, f"GPU {{{{gpu}}}} {{{{name}}}} {what}", ref))
    return panel


def power() -> timeseries.Panel:
    """Power as a share of its limit."""
    return (
        _curves(8, "Power against its limit", "percentunit")
        .description(
            "Power draw of each board as a share of its enforced limit. A busy GPU that draws less "
            "than half of it at full clock is probably not full; activity, beside this, is the "
            "better evidence."
        )
        .with_target(_query(queries.POWER_SHARE, "GPU {{gpu}} {{name}}", "A"))
    )


def held_down() -> statetimeline.Panel:
    """Reasons for reduced clocks, one row for each GPU."""
    states = {
        str(number): model.ValueMappingResult(text=text, color=colour)
        for number, (text, colour) in enumerate(_STATES)
    }
    return (
        statetimeline.Panel()
        .id(9)
        .title("What holds the clocks down")
        .description(
            "The worst reason why a board reduces its clocks. The power limit at full load is "
            "normal; for heat and the board itself (hardware slowdown, power brake), check "
            "cooling and power supply. Grey: unknown."
        )
        .height(8)
        .span(_HALF)
        .unit("none")
        .mappings([model.ValueMap(options=states)])
        .thresholds(_thresholds((None, "green")))
        .show_value(common.VisibilityMode.NEVER)
        .with_target(_query(queries.HELD_DOWN, "GPU {{gpu}} {{name}}", "A"))
    )


def xid_errors() -> timeseries.Panel:
    """Errors that the driver reported."""
    return (
        _curves(10, "XID errors", "none")
        .height(8)
        .decimals(0)
        .description(
            "Errors that the driver reported while gpumon was running, by XID. XID 13, 31, 43 and "
            "45 mostly come from a program, others from the board or its links; the runbook of "
            "GpumonGPUXidErrors says what to do. A line at 0: none."
        )
        .with_target(_query(queries.XID_ERRORS, "GPU {{gpu}} {{name}} XID {{xid}}", "A"))
        .override_by_regexp(".*XID none", [_fixed("text")])
    )
