"""Draws one panel of a dashboard with matplotlib, from the answers of Prometheus.

It draws what the panel's JSON asks for, as far as a still picture needs it. It is not Grafana.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, MultipleLocator

Sample: TypeAlias = dict[str, Any]
Answers: TypeAlias = Mapping[str, list[Sample]]
"""Results of Prometheus by the reference of the query."""
Row: TypeAlias = dict[str, Any]

MINUTES: Final = 300
"""Seconds between two ticks of a length of time."""
INK: Final = "#24292e"
QUIET: Final = "#6a737d"
RULE: Final = "#d8dee4"
COLOURS: Final = {
    "green": "#56a64b",
    "red": "#e02f44",
    "orange": "#ff780a",
    "yellow": "#f2cc0c",
    "blue": "#3274d9",
    "purple": "#8f3bb8",
    "text": INK,
}
SERIES: Final = (
    *("#56a64b", "#f2cc0c", "#3274d9", "#ff780a", "#e02f44", "#8f3bb8", "#5195ce", "#705da0"),
    *("#508642", "#cca300", "#447ebc", "#c15c17", "#890f02", "#6d1f62"),
)
_SCALED: Final = {
    "watt": ("W", 1000),
    "hertz": ("Hz", 1000),
    "bytes": ("B", 1024),
    "kwatth": ("Wh", 1000),
    "massg": ("g", 1000),
}
POINTS: Final = 0.72
"""Of one pixel."""
_PREFIXES: Final = {1000: ("", "k", "M", "G"), 1024: ("", "Ki", "Mi", "Gi")}


def written(unit: str, value: float, decimals: int | None) -> str:
    """A value as Grafana writes it, for the units that the dashboards use."""
    if unit.startswith("suffix:"):
        return f"{_number(value, decimals)} {unit.removeprefix('suffix:')}"
    if unit == "percentunit":
        return f"{_number(value * 100, decimals)}%"
    if unit == "locale":
        text = f"{value:,.{2 if decimals is None else decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    if unit == "s":
        return _duration(value, decimals)
    if unit == "celsius":
        return f"{_number(value, decimals)} °C"
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    if unit not in _SCALED:
        return _number(value, decimals)
    name, base = _SCALED[unit]
    scaled, step = value * 1000 if unit == "kwatth" else value, 0
    while abs(scaled) >= base and step < len(_PREFIXES[base]) - 1:
        scaled, step = scaled / base, step + 1
    return f"{_number(scaled, decimals)} {_PREFIXES[base][step]}{name}"


def _number(value: float, decimals: int | None) -> str:
    """With so many decimals; ``None``: as many as it has, three at most."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _duration(seconds: float, decimals: int | None) -> str:
    for name, length in (("hour", 3600), ("min", 60), ("s", 1)):
        if abs(seconds) >= length:
            text = _number(seconds / length, decimals)
            return f"{text} {name}{'s' if name != 's' and text != '1' else ''}"
    if not seconds:
        return "0 s"
    is_ms = abs(seconds) >= 1e-3
    return f"{_number(seconds * (1e3 if is_ms else 1e6), decimals)} {'ms' if is_ms else 'µs'}"


# -- settings of fields -------------------------------------------------------------


def settings_of(panel: dict[str, Any], name: str) -> dict[str, Any]:
    """Unit, colour, mappings and more of the field with this name."""
    config = panel["fieldConfig"]
    found = {key: value for key, value in config["defaults"].items() if key != "custom"}
    for override in config["overrides"]:
        matcher = override["matcher"]
        if (matcher["id"] == "byName" and matcher["options"] == name) or _is_like(matcher, name):
            found.update({one["id"]: one["value"] for one in override["properties"]})
    return found


def _is_like(matcher: dict[str, Any], name: str) -> bool:
    return matcher["id"] == "byRegexp" and bool(re.fullmatch(matcher["options"], name))


def text_and_colour(settings: dict[str, Any], value: float) -> tuple[str, str]:
    """What a single value shows."""
    for mapping in settings.get("mappings", ()):
        result = mapping["options"]
        if mapping["type"] == "value" and f"{value:g}" in result:
            chosen = result[f"{value:g}"]
            return chosen["text"], COLOURS.get(chosen["color"], chosen["color"])
        if mapping["type"] == "special" and math.isnan(value):
            return result["result"]["text"], INK
    if "color" in settings and settings["color"].get("mode") == "fixed":
        colour = settings["color"]["fixedColor"]
    else:
        steps = settings.get("thresholds", {}).get("steps", [])
        colour = "text"
        for step in steps:
            if step["value"] is None or value >= step["value"]:
                colour = step["color"]
    return written(settings["unit"], value, settings.get("decimals")), COLOURS.get(colour, colour)


def legend(target: dict[str, Any], labels: Mapping[str, str]) -> str:
    """The name of a series."""
    text = target["legendFormat"]
    for key in ("gpu", "name", "cause", "reason", "use", "kind", "xid", "phase", "run",
                "collector", "instance"):  # fmt: skip
        text = text.replace(f"{{{{{key}}}}}", labels.get(key, ""))
    return " ".join(text.split())


def word_of(panel: dict[str, Any], name: str) -> str:
    """The name that is shown for a series."""
    shown: str = settings_of(panel, name).get("displayName", name)
    return shown


# -- kinds of panels ----------------------------------------------------------------


def draw(axes: Axes, panel: dict[str, Any], answers: Answers, shown_s: tuple[float, float]) -> None:
    """Draw one panel into axes that have its size."""
    if not any(answers.values()):
        axes.axis("off")
        axes.text(0.5, 0.5, "No data", ha="center", va="center", color=QUIET, fontsize=11)
        return
    kinds = {
        "stat": _draw_figures,
        "table": _draw_table,
        "barchart": _draw_bars,
    }
    if panel["type"] in kinds:
        kinds[panel["type"]](axes, panel, answers)
    elif panel["type"] == "state-timeline":
        _draw_states(axes, panel, answers)
        _draw_time(axes, shown_s)
    else:
        _draw_curves(axes, panel, answers)
        _draw_time(axes, shown_s)


def _draw_figures(axes: Axes, panel: dict[str, Any], answers: Answers) -> None:
    """Each value below its name, as Grafana shows both."""
    axes.axis("off")
    sizes = panel["options"].get("text", {})
    shown = [
        (legend(target, one["metric"]), float(one["value"][1]))
        for target in panel["targets"]
        for one in answers[target["refId"]]
    ]
    cells = [
        (word_of(panel, name), *text_and_colour(settings_of(panel, name), value))
        for name, value in shown
    ]
    room = 1.1 * axes.bbox.width / len(cells)
    of_words = _fitting(sizes.get("titleSize", 11), room, [word for word, _, _ in cells])
    of_values = _fitting(sizes.get("valueSize", 30), room, [text for _, text, _ in cells])
    for number, (word, text, colour) in enumerate(cells):
        middle = (number + 0.5) / len(cells)
        ink = INK if sizes else QUIET
        axes.text(middle, 0.7, word, ha="center", va="center", color=ink, fontsize=of_words)
        axes.text(middle, 0.3, text, ha="center", va="center", color=colour, fontsize=of_values)


def _fitting(pixels: float, room: float, texts: Sequence[str]) -> float:
    """A size in points at which all of the texts fit."""
    return min(pixels * POINTS, room / max(4, *map(len, texts)))


def table_rows(panel: dict[str, Any], answers: Answers) -> list[Row]:
    """Rows of a table after the transformations ``merge`` and ``organize``."""
    found: list[Row] = []
    several = sum(bool(answer) for answer in answers.values()) > 1
    for target in panel["targets"]:
        ref = target["refId"]
        for one in answers[ref]:
            labels = {key: text for key, text in one["metric"].items() if key != "__name__"}
            row = next((row for row in found if _fits(row, labels)), None)
            if row is None:
                row = {}
                found.append(row)
            row.update(labels)
            row[f"Value #{ref}" if several else "Value"] = float(one["value"][1])
    organize = panel["transformations"][-1]["options"]
    places = organize["indexByName"]
    order = [
        key for key in sorted(places, key=places.__getitem__) if any(key in row for row in found)
    ]
    names = organize["renameByName"]
    return [{names.get(key, key): row.get(key) for key in order} for row in found]


def _fits(row: Row, labels: Mapping[str, str]) -> bool:
    shared = [key for key in labels if key in row]
    return bool(shared) and all(row[key] == labels[key] for key in shared)


def _draw_table(axes: Axes, panel: dict[str, Any], answers: Answers) -> None:
    axes.axis("off")
    rows = table_rows(panel, answers)
    headings = list(rows[0])
    cells = [[_cell(panel, heading, row[heading]) for heading in headings] for row in rows]
    texts = [headings, *cells]
    widths = [max(len(line[place]) for line in texts) + 3 for place in range(len(headings))]
    starts = np.cumsum([0, *widths]) / max(sum(widths), axes.bbox.width / 7)
    height = min(0.12, 1 / max(len(texts), 1))
    for number, line in enumerate(texts):
        y = 1 - (number + 0.5) * height
        for start, text, heading in zip(starts, line, headings, strict=False):
            is_link = number and any(
                one["id"] == "links"
                for override in panel["fieldConfig"]["overrides"]
                for one in override["properties"]
                if override["matcher"]["options"] == heading
            )
            colour = QUIET if number == 0 else COLOURS["blue"] if is_link else INK
            axes.text(start, y, text, va="center", color=colour, fontsize=8)
        axes.axhline(y - height / 2, color=RULE, linewidth=0.6)
    axes.set_ylim(0, 1)
    axes.set_xlim(0, 1)


def _cell(panel: dict[str, Any], heading: str, value: object) -> str:
    if isinstance(value, float):
        return text_and_colour(settings_of(panel, heading), value)[0]
    for mapping in settings_of(panel, heading).get("mappings", ()):
        if mapping["type"] == "value" and value in mapping["options"]:
            return str(mapping["options"][value]["text"])
    return "" if value is None else str(value)


def _draw_bars(axes: Axes, panel: dict[str, Any], answers: Answers) -> None:
    (target,) = panel["targets"]
    options = panel["transformations"][0]["options"]
    column, row = options["columnField"], options["rowField"]
    samples = answers[target["refId"]]
    names = sorted({one["metric"][row] for one in samples}, reverse=True)
    starts = dict.fromkeys(names, 0.0)
    causes = dict.fromkeys(one["metric"][column] for one in samples)
    for place, cause in enumerate(causes):
        lengths = dict.fromkeys(names, 0.0)
        for one in samples:
            if one["metric"][column] == cause:
                lengths[one["metric"][row]] = float(one["value"][1])
        axes.barh(
            names, list(lengths.values()), left=list(starts.values()),
            color=_colour(panel, cause, place), label=word_of(panel, cause), height=0.6,
        )  # fmt: skip
        starts = {name: starts[name] + lengths[name] for name in names}
    axes.xaxis.set_major_formatter(lambda value, _: written(panel_unit(panel), value, 0))
    axes.xaxis.set_major_locator(MultipleLocator(MINUTES))
    _finish(axes, len(causes))


def panel_unit(panel: dict[str, Any]) -> str:
    """The unit of the axis."""
    unit: str = panel["fieldConfig"]["defaults"]["unit"]
    return unit


def _colour(panel: dict[str, Any], name: str, place: int) -> str:
    colour = settings_of(panel, name).get("color", {})
    if isinstance(colour, dict) and colour.get("mode") == "fixed":
        fixed: str = colour["fixedColor"]
        return COLOURS.get(fixed, fixed)
    return SERIES[place % len(SERIES)]


def _times(one: Sample) -> list[datetime]:
    return [datetime.fromtimestamp(at, timezone.utc) for at, _ in one["values"]]


def _draw_curves(axes: Axes, panel: dict[str, Any], answers: Answers) -> None:
    series = [
        (legend(target, one["metric"]), one)
        for target in panel["targets"]
        for one in answers[target["refId"]]
    ]
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    every = sorted({at for _, one in series for at, _ in one["values"]})
    times = [datetime.fromtimestamp(at, timezone.utc) for at in every]
    bottom = np.zeros(len(every))
    highest = 0.0
    for place, (name, one) in enumerate(series):
        colour = _colour(panel, name, place)
        values = dict(one["values"])
        line = np.array([float(values.get(at, "nan")) for at in every])
        highest = max(highest, *np.nan_to_num(line))
        if is_stacked:
            top = bottom + np.nan_to_num(line)
            axes.fill_between(
                times,
                bottom,
                top,
                color=colour,
                alpha=0.75,
                label=word_of(panel, name),
                linewidth=0,
            )
            bottom = top
        else:
            is_dashed = "custom.lineStyle" in settings_of(panel, name)
            style = "--" if is_dashed else "-"
            # Equal lines are all visible: the first is the widest.
            width = 1.3 + 1.4 * sum(
                one["values"] == other["values"] for _, other in series[place + 1 :]
            )
            axes.plot(
                times, line, style, color=colour, linewidth=width, label=word_of(panel, name),
                clip_on=False,
            )  # fmt: skip
    defaults = panel["fieldConfig"]["defaults"]
    axes.set_ylim(0, defaults.get("max", None if highest else 1))
    if defaults.get("decimals") == 0:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    elif panel_unit(panel) == "bytes":
        axes.yaxis.set_major_locator(MultipleLocator(2 ** math.floor(math.log2(highest / 3))))
    axes.yaxis.set_major_formatter(lambda value, _: written(panel_unit(panel), value, None))
    axes.set_ylabel(custom.get("axisLabel", ""), fontsize=7, color=QUIET)
    axes.grid(color=RULE, linewidth=0.5)
    _finish(axes, len(series))


def _draw_states(axes: Axes, panel: dict[str, Any], answers: Answers) -> None:
    (target,) = panel["targets"]
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    samples = answers[target["refId"]]
    names = [legend(target, one["metric"]) for one in samples]
    for height, one in enumerate(samples):
        times = _times(one)
        for begin, end, (_, value) in zip(times, times[1:], one["values"], strict=False):
            colour = mapping["options"][f"{float(value):g}"]["color"]
            axes.barh(height, end - begin, left=begin, height=0.7, color=COLOURS[colour])
    axes.set_yticks(range(len(names)), names)
    for one in mapping["options"].values():
        axes.add_patch(Rectangle((0, 0), 0, 0, color=COLOURS[one["color"]], label=one["text"]))
    _finish(axes, len(mapping["options"]))


def _draw_time(axes: Axes, shown_s: tuple[float, float]) -> None:
    begin, end = (datetime.fromtimestamp(at, timezone.utc) for at in shown_s)
    axes.set_xlim(begin, end)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))


def _finish(axes: Axes, entries: int) -> None:
    axes.tick_params(colors=QUIET, labelsize=7, length=2)
    for side in axes.spines.values():
        side.set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    longest = max((len(name) for name in names), default=0) + 5
    columns = max(1, min(entries, int(axes.bbox.width / (longest * 4.8))))
    # Ticks and names are below the axes, which become so much smaller.
    whole, box = axes.figure.bbox.height, axes.get_position()
    below = (14 + 13 * math.ceil(entries / columns)) / whole
    axes.set_position((box.x0, box.y0 + below, box.width, box.height - below))
    axes.legend(
        handles, names, loc="upper center", bbox_to_anchor=(0.5, -18 / axes.bbox.height),
        fontsize=6.5, borderpad=0, labelspacing=0.3,
        ncols=columns, frameon=False, labelcolor=INK, handlelength=1.2, columnspacing=1,
    )  # fmt: skip


def marks(axes: Axes, times: Sequence[tuple[float, str]]) -> None:
    """Dotted lines of annotations: Unix seconds and colours; those of one moment alternate."""
    for number, (at, colour) in enumerate(times):
        axes.axvline(
            datetime.fromtimestamp(at, timezone.utc),
            color=COLOURS[colour], linewidth=1.2, linestyle=(3 * number, (3, 6)),
        )  # fmt: skip
