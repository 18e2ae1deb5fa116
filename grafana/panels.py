"""The panels on lost time: the first six of the dashboard."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana import queries

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDE: Final = 24

BAND_COLOURS: Final = {
    "busy": "green",
    "starved": "red",
    "suspected": "orange",
    "lost to something else": "yellow",
    "not in use": "#5a5a5a",
}
NOT_IN_USE: Final = model.ValueMap(
    options={"-1": model.ValueMappingResult(text="not in use", color="text")}
)
NO_PAUSE: Final = model.SpecialValueMap(
    options=model.DashboardSpecialValueMapOptions(
        match=model.SpecialValueMatch.NULL_AND_NAN,
        result=model.ValueMappingResult(text="none", color="text"),
    )
)


def query(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query over the time shown."""
    return prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref).datasource(SOURCE)


def _moment(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query for one value over the whole time shown."""
    return query(expr, legend, ref).instant()


def thresholds(*steps: tuple[float | None, str]) -> build.ThresholdsConfig:
    """Colours from a value on; ``None`` is minus infinity."""
    return (
        build.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in steps])
    )


def _property(key: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val=key, value=value)


def fixed(colour: str) -> model.DynamicConfigValue:
    """One colour, whatever the value."""
    return _property("color", {"mode": "fixed", "fixedColor": colour})


def _legend() -> options.VizLegendOptions:
    return (
        options.VizLegendOptions()
        .show_legend(True)
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
    )


def _figures(panel_id: int, title: str, unit: str) -> stat.Panel:
    """Large figures of now, with their names."""
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
    """What the time shown has cost."""
    return (
        _figures(1, "GPU time lost", "percentunit")
        .description(
            "Share of in-use GPU time in which no kernel ran, over the time shown. Starved: "
            "idle while a tagged training waited for input. Suspected: pauses of a bursty "
            "pattern that no tag explains. GPU time: the loss of all GPUs together, in seconds. "
            "'not in use': the GPUs answer and nothing trains on them. 'No data': nothing is "
            "scraped."
        )
        .span(16)
        .decimals(1)
        .mappings([NOT_IN_USE])
        .thresholds(thresholds((None, "green"), (0.05, "orange"), (0.2, "red")))  # as the verdict
        .color_mode(common.BigValueColorMode.VALUE)
        .with_target(_moment(queries.LOST_SHARE, "lost", "A"))
        .with_target(_moment(queries.STARVED_SHARE, "starved", "B"))
        .with_target(_moment(queries.SUSPECTED_SHARE, "suspected", "C"))
        .with_target(_moment(queries.LOST_SECONDS, "GPU time", "D"))
        .override_by_name("GPU time", [_property("unit", "s"), fixed("text")])
    )


def culprit() -> stat.Panel:
    """The one cause to look at first."""
    return (
        _figures(2, "Main culprit", "s")
        .description(
            "The cause that took the most in-use GPU time over the time shown, and how much, in "
            "seconds of GPU time. 'unknown' means that no training was tagged."
        )
        .span(8)
        .thresholds(thresholds((None, "text")))
        .with_target(_moment(queries.CULPRIT, "{{cause}}", "A"))
    )


def curves(panel_id: int, title: str, unit: str) -> timeseries.Panel:
    """Lines over the time shown, half the dashboard wide."""
    return (
        timeseries.Panel()
        .id(panel_id)
        .title(title)
        .height(9)
        .span(12)
        .unit(unit)
        .min(0)
        .legend(_legend())
        .tooltip(options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )


def _stacked(panel: timeseries.Panel) -> timeseries.Panel:
    return (
        panel.fill_opacity(70)
        .line_width(1)
        .stacking(options.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    )


def use_of_time() -> timeseries.Panel:
    """Busy, idle and starved, adding up to the whole."""
    panel = _stacked(curves(3, "Where the GPU time went", "percentunit")).description(
        "Share of GPU time, all chosen GPUs together; the bands add up to 100 %. Built on time "
        "counters, so that no rhythm of scraping hides a pause. An idle time whose cause is not "
        "decided yet appears once it is."
    )
    bands = (
        (queries.BUSY_BAND, "busy"),
        (queries.STARVED_BAND, "starved"),
        (queries.SUSPECTED_BAND, "suspected"),
        (queries.OTHER_LOSS_BAND, "lost to something else"),
        (queries.NOT_IN_USE_BAND, "not in use"),
    )
    for ref, (expr, name) in zip("ABCDE", bands, strict=True):
        panel = panel.with_target(query(expr, name, ref)).override_by_name(
            name, [fixed(BAND_COLOURS[name])]
        )
    return panel.max(1)


def causes() -> timeseries.Panel:
    """What the lost time went to."""
    return (
        _stacked(curves(4, "What the lost time went to", "none"))
        .description(
            "GPUs lost to each cause: 1 is one whole GPU standing idle, summed over the chosen "
            "ones. Time before the first work of a job and after its last is left out."
        )
        .decimals(2)
        .with_target(query(queries.CAUSES, "{{cause}}", "A"))
        .override_by_name("input_wait", [fixed("red")])
        .override_by_name("unknown", [fixed("orange")])
    )


def gaps() -> timeseries.Panel:
    """How long the pauses are: the shape of the trouble."""
    return (
        curves(5, "Length of the pauses", "s")
        .span(WIDE)
        .description(
            "Median and 95th percentile of the pauses between two bursts of work, in seconds, "
            "counted when a pause ends. Pauses shorter than the driver's sample (1/6 to 1 s) do "
            "not show as such; they lower the busy share instead. No line: no pause ended."
        )
        .with_target(query(queries.GAP_MEDIAN, "GPU {{gpu}} {{name}} median", "A"))
        .with_target(query(queries.GAP_P95, "GPU {{gpu}} {{name}} 95 %", "B"))
    )


COLUMNS: Final = {
    "busy": ("Busy", "percentunit"),
    "starved": ("Starved", "percentunit"),
    "suspected": ("Suspected", "percentunit"),
    "lost": ("Lost", "s"),
    "gap": ("Pause 95 %", "s"),
    "memory": ("Memory", "percentunit"),
    "now": ("Starved now", "bool_yes_no"),
}
"""Key of the query: heading and unit."""


def _arrangement() -> list[model.DataTransformerConfig]:
    values = {f"Value #{key}": heading for key, (heading, _) in COLUMNS.items()}
    names = {"instance": "Machine", "gpu": "GPU", "name": "Model", "uuid": "UUID", **values}
    arrange = {
        "excludeByName": {"Time": True, "job": True, "Value #info": True},
        "renameByName": names,
        "indexByName": {name: place for place, name in enumerate([*names])},
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
            "Over the time shown: shares of observed time; Lost is in-use GPU time in seconds "
            "in which no kernel ran; Pause 95 % the 95th percentile of the pauses in seconds; "
            "Memory its newest share in use; Starved now: 5 % of the last minute in use were."
        )
        .height(9)
        .span(WIDE)
        .decimals(1)
        .transformations(_arrangement())
    )
    for key, expr in queries.TABLE.items():
        panel = panel.with_target(_moment(expr, "", key).format(PromQueryFormat.TABLE))
    for heading, unit in COLUMNS.values():
        panel = panel.override_by_name(heading, [_property("unit", unit)])
    return panel.override_by_name(
        "Pause 95 %", [_property("unit", "s"), _property("mappings", [NO_PAUSE])]
    )
