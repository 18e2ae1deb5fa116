"""What the three dashboards share: queries, kinds of panels, empty states, links, variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import barchart, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from gpumon.core.diagnosis.messages import DOING, WORD_OF_CAUSE, WORD_OF_REASON
from gpumon.core.phase import IdleCause, InputWaitReason

SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDE: Final = 24
HALF: Final = 12
THIRD: Final = 8

FLEET_UID: Final = "gpumon-fleet"
HOST_UID: Final = "gpumon-host"
RUN_UID: Final = "gpumon-run"
TITLES: Final = {
    FLEET_UID: "GPU fleet: lost time and its price",
    HOST_UID: "GPU host: use of each GPU",
    RUN_UID: "Training run: lost time and why",
}

NOT_IN_USE: Final = model.ValueMap(
    options={"-1": model.ValueMappingResult(text="not in use", color="text")}
)
"""Queries return -1 where GPUs answer and no job runs on them."""
NO_PAUSE: Final = model.SpecialValueMap(
    options=model.DashboardSpecialValueMapOptions(
        match=model.SpecialValueMatch.NULL_AND_NAN,
        result=model.ValueMappingResult(text="none", color="text"),
    )
)
NAMED_GPU: Final = "GPU {{gpu}} {{name}}"
NO_ANSWER: Final = "'No data': nothing is scraped from this host; check its daemon."
GPU_HOURS: Final = "suffix:GPU-h"
GPUS: Final = "GPUs"
"""What an axis counts."""
MONEY: Final = "locale"
"""With separators of thousands; the currency is that of the variable."""

CAUSE_COLOURS: Final = {
    "busy": "green",
    "input_wait": "red",
    "within_step": "#c4a000",
    "imbalance": "#b877d9",
    "host_to_device": "#e0879f",
    "callbacks": "#8a6d3b",
    "checkpoint": "#6f5aa8",
    "validation": "#2f9e9e",
    "compile": "#f2cc0c",
    "between_epochs": "#7b8bb5",
    "start_up": "#e8dba4",
    "unknown": "orange",
    "not_in_use": "#5a5a5a",
    "nothing lost": "text",
}
REASON_COLOURS: Final = {
    "cpu_bound": "#d55e00",
    "gil_bound": "#cc79a7",
    "disk_bound": "#0072b2",
    "network_bound": "#009e73",
    "memory_pressure": "#e6c700",
    "latency_bound": "#56b4e9",
    "unknown": "#98a2ae",
    "no tagged wait": "text",
}
"""As in the pictures of a log."""
CAUSE_WORDS: Final = {cause.value: word for cause, word in WORD_OF_CAUSE.items()}
REASON_WORDS: Final = {
    InputWaitReason(reason).value: word for reason, word in WORD_OF_REASON.items()
}
PHASE_WORDS: Final = {phase.value: word for phase, word in DOING.items()}
USE_WORDS: Final = {"not_in_use": WORD_OF_CAUSE[IdleCause.NOT_IN_USE]}
CLOCK_WORDS: Final = {
    "sw_thermal_slowdown": "heat (by software)",
    "hw_thermal_slowdown": "heat (by hardware)",
    "sw_power_cap": "power limit",
    "hw_power_brake_slowdown": "the machine's power supply",
    "hw_slowdown": "the board itself",
    "applications_clocks_setting": "configured",
    "sync_boost": "configured for several GPUs together",
    "display_clock_setting": "configured for a display",
}
"""Each reason for reduced clocks."""

Panel = TypeVar("Panel", timeseries.Panel, barchart.Panel, stat.Panel)


# -- queries ----------------------------------------------------------------------


def over_time(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query over the time shown."""
    return (
        prometheus.Dataquery()
        .expr(expr)
        .legend_format(legend)
        .ref_id(ref)
        .datasource(SOURCE)
        .range()
    )


def over_tiles(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query over the time shown, with steps, and ``$__interval``, of one tile or several."""
    return over_time(expr, legend, ref).interval("${tile}")


def instant(expr: str, legend: str, ref: str) -> prometheus.Dataquery:
    """A query for one value over the whole time shown."""
    return (
        prometheus.Dataquery()
        .expr(expr)
        .legend_format(legend)
        .ref_id(ref)
        .datasource(SOURCE)
        .instant()
    )


# -- values, colours, links -------------------------------------------------------


def thresholds(*steps: tuple[float | None, str]) -> build.ThresholdsConfig:
    """Colours by lower bound; ``None`` is minus infinity."""
    return (
        build.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in steps])
    )


LOSS_THRESHOLDS: Final = ((None, "green"), (0.05, "orange"), (0.2, "red"))
"""As the verdict."""


def field_property(key: str, value: object) -> model.DynamicConfigValue:
    """A setting of one field."""
    return model.DynamicConfigValue(id_val=key, value=value)


def fixed(colour: str) -> model.DynamicConfigValue:
    """One colour for a field."""
    return field_property("color", {"mode": "fixed", "fixedColor": colour})


def unit(name: str, decimals: int | None = None) -> list[model.DynamicConfigValue]:
    """The unit of one field, or of one column."""
    found = [field_property("unit", name)]
    if decimals is not None:
        found.append(field_property("decimals", decimals))
    return found


def link_to(uid: str, variable: str) -> model.DynamicConfigValue:
    """A link from a cell to the dashboard of the host or run that it names."""
    url = (
        f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}"
        f"&var-{variable}=${{__value.raw:percentencode}}"
    )
    return field_property("links", [{"title": f"Show {TITLES[uid]}", "url": url}])


# -- panels -----------------------------------------------------------------------


def figures(title: str, unit_name: str) -> stat.Panel:
    """Large present values with their names."""
    return (
        stat.Panel()
        .title(title)
        .height(5)
        .unit(unit_name)
        .graph_mode(common.BigValueGraphMode.NONE)
        .text_mode(common.BigValueTextMode.VALUE_AND_NAME)
        .color_mode(common.BigValueColorMode.VALUE)
        .mappings([NOT_IN_USE])
        .thresholds(thresholds((None, "text")))
        .reduce_options(options.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def culprit(expr: str) -> stat.Panel:
    """The main cause, large, above the GPU-hours that it took."""
    panel = (
        figures("Main cause", GPU_HOURS)
        .decimals(2)
        .text(options.VizTextDisplayOptions().title_size(22).value_size(16))
        .with_target(instant(expr, "{{cause}}", "A"))
    )
    return worded(panel, {}, CAUSE_WORDS)


def curves(title: str, unit_name: str, counted: str = "") -> timeseries.Panel:
    """Lines over the time shown, in half the width.

    Args:
        title: What they show.
        unit_name: The unit of the values.
        counted: What the axis counts, for values without a unit.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .height(9)
        .span(HALF)
        .unit(unit_name)
        .min(0)
        .legend(
            options.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
        .tooltip(options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
    )
    return panel.axis_label(counted) if counted else panel


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    """The same lines, stacked and filled."""
    return (
        panel.fill_opacity(70)
        .line_width(1)
        .stacking(options.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    )


def worded(panel: Panel, colours: Mapping[str, str], words: Mapping[str, str]) -> Panel:
    """With a fixed colour, and the word of the glossary, for each name of a series."""
    for name in dict.fromkeys((*colours, *words)):
        settings = [fixed(colours[name])] if name in colours else []
        if name in words:
            settings.append(field_property("displayName", words[name]))
        panel = panel.override_by_name(name, settings)
    return panel


def cells_in_words(words: Mapping[str, str]) -> model.DynamicConfigValue:
    """Cells of a column in words of the glossary."""
    texts = {name: model.ValueMappingResult(text=word) for name, word in words.items()}
    return field_property("mappings", [model.ValueMap(options=texts)])


class Column:
    """A column of a table.

    Attributes:
        source: The label, or ``Value #REF`` of a query.
        heading: What the table shows above it.
        properties: Its unit, links and mappings.
    """

    def __init__(self, source: str, heading: str, *properties: model.DynamicConfigValue) -> None:
        self.source = source
        self.heading = heading
        self.properties = list(properties)


def rows(
    panel: table.Panel, targets: Mapping[str, str], columns: Iterable[Column], hidden: Iterable[str]
) -> table.Panel:
    """A table with one instant query for each group of columns.

    Args:
        panel: The table to complete.
        targets: Expressions by reference.
        columns: In the order shown.
        hidden: Fields that are not shown, beside the time.
    """
    columns = list(columns)
    names = {column.source: column.heading for column in columns}
    values = [column for column in columns if column.source.startswith("Value #")]
    if values and len(targets) > 1:
        # If only the first query has a result, old versions of Grafana call it so.
        names["Value"] = values[0].heading
    arrange = {
        "excludeByName": dict.fromkeys(("Time", *hidden), True),
        "renameByName": names,
        "indexByName": {column.source: place for place, column in enumerate(columns)},
    }
    panel = panel.transformations(
        [
            model.DataTransformerConfig(id_val="merge", options={}),
            model.DataTransformerConfig(id_val="organize", options=arrange),
        ]
    )
    for ref, expr in targets.items():
        panel = panel.with_target(instant(expr, "", ref).format(PromQueryFormat.TABLE))
    for column in columns:
        if column.properties:
            panel = panel.override_by_name(column.heading, column.properties)
    return panel


# -- the frame of a dashboard -----------------------------------------------------


def choice(name: str, label: str, query: str) -> build.QueryVariable:
    """A variable with the values of a label, looked up again for each time range."""
    return (
        build.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )


def with_all(variable: build.QueryVariable) -> build.QueryVariable:
    """Several values may be chosen, and all of them are at first."""
    everything = model.VariableOption(text="All", value="$__all")
    return variable.include_all(True).multi(True).current(everything)


def number(name: str, label: str, default: str, description: str) -> build.TextBoxVariable:
    """A box for a number."""
    return (
        build.TextBoxVariable(name)
        .label(label)
        .description(description)
        .default_value(default)
        .current(model.VariableOption(text=default, value=default))
        .options([model.VariableOption(text=default, value=default)])
    )


PRICE: Final = ("price", "Price of a GPU-hour", "2.50", "In your currency, with a decimal point.")


def frame(uid: str, description: str, *, shown: str, refresh: str) -> build.Dashboard:
    """An empty dashboard with the data source, the links to the others, and no panels."""
    whole = (
        build.Dashboard(TITLES[uid])
        .uid(uid)
        .description(description)
        .tags(["gpu", "gpumon", "training"])
        .refresh(refresh)
        .time(shown, "now")
        .timezone("browser")
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            build.DatasourceVariable("datasource")
            .label("Prometheus")
            .type("prometheus")
            .current(model.VariableOption(text="${DS_PROMETHEUS}", value="${DS_PROMETHEUS}"))
        )
    )
    for other, title in TITLES.items():
        if other != uid:
            whole = whole.link(
                build.DashboardLink(title)
                .type(model.DashboardLinkType.LINK)
                .url(f"/d/{other}")
                .keep_time(True)
                .include_vars(True)
                .icon("dashboard")
                .tooltip("Keeps the time shown")
            )
    return whole


def note(name: str, expr: str, colour: str) -> build.AnnotationQuery:
    """An annotation; ``grafana.generate`` adds its texts."""
    return (
        build.AnnotationQuery()
        .name(name)
        .datasource(SOURCE)
        .expr(expr)
        .enable(True)
        .icon_color(colour)
    )
