"""Pictures of the dashboards, which ``make pictures`` draws.

A real Prometheus answers the queries of the dashboards about the half hour of
``tests/builders/scripted_hosts.py``, whose truth the tests know, and matplotlib draws the answers.
The pictures are not Grafana, and say so.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from grafana import picture_panels
from tests.builders.scripted_hosts import Hours
from tests.dashboard_file import BOARDS, FLEET, VARIABLES, as_grafana_sends_it
from tests.e2e.prometheus_server import Prometheus
from tests.e2e.scripted_prometheus import NOW_S, SENT, SHOWN_S, prometheus_after

WIDTH: Final = 1120
UNIT: Final = 30
"""Pixels of one line of the grid."""
HEAD: Final = 66
GAP: Final = 4
DPI: Final = 100
STEP_S: Final = 15
TILE_S: Final = 300
NOTE: Final = "not Grafana: drawn by matplotlib from the same queries, after a scripted half hour"


def pictures_of(uid: str) -> dict[str, list[dict[str, Any]]]:
    """Panels by name of the picture: those before the first row, and from there on."""
    panels = BOARDS[uid]["panels"]
    first = next((at for at, one in enumerate(panels) if one["type"] == "row"), len(panels))
    found = {uid: panels[:first], f"{uid}-boards": panels[first:]}
    return {name: some for name, some in found.items() if some}


PICTURES: Final = {name: uid for uid in BOARDS for name in pictures_of(uid)}
"""The dashboard of each picture."""


def picture(name: str, server: Prometheus) -> bytes:
    """A dashboard, or a part of it, as a PNG."""
    uid = PICTURES[name]
    board, panels = BOARDS[uid], pictures_of(uid)[name]
    first = min(one["gridPos"]["y"] for one in panels)
    lines = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in panels) - first
    height = HEAD + lines * UNIT
    figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor="#f4f5f5")
    title = board["title"] if name == uid else f"{board['title']}, continued"
    figure.text(0.008, 1 - 18 / height, title, fontsize=14, va="center", weight="bold")
    figure.text(0.008, 1 - 38 / height, chosen(board), va="center", fontsize=9)
    figure.text(0.008, 1 - 55 / height, NOTE, fontsize=9, va="center", color="#c4162a")
    notes = marks_of(board, server)
    _explain(figure, board, {colour for _, colour in notes})
    for panel in panels:
        place = {**panel["gridPos"], "y": panel["gridPos"]["y"] - first}
        left, width = place["x"] / 24 * WIDTH + GAP, place["w"] / 24 * WIDTH - 2 * GAP
        top = HEAD + place["y"] * UNIT + GAP
        tall = place["h"] * UNIT - 2 * GAP
        if panel["type"] == "row":
            figure.text(left / WIDTH, 1 - (top + tall / 2) / height, panel["title"], va="center")
            continue
        _paper(figure, (left, top, width, tall), panel["title"])
        axes = _axes(figure, panel["type"], (left, top, width, tall))
        answers = answers_of(panel, server, uid)
        picture_panels.draw(axes, panel, answers, (NOW_S - SHOWN_S, NOW_S))
        if panel["type"] == "timeseries":
            picture_panels.marks(axes, notes)
    return _png(figure)


def chosen(board: dict[str, Any]) -> str:
    """The variables that Grafana shows above the panels, and the time."""
    values = {**VARIABLES, **SENT, "gpu": "All", "job": "All", "datasource": "Prometheus"}
    shown = [one for one in board["templating"]["list"] if one.get("hide", 0) != 2]
    texts = [f"{one['label']}: {values[one['name']]}" for one in shown]
    return "    ".join([*texts, "Last 30 minutes"])


def _explain(figure: Figure, board: dict[str, Any], colours: set[str]) -> None:
    """Say what the dotted lines mean."""
    _, height = figure.get_size_inches() * DPI
    notes = [one for one in board["annotations"]["list"] if one["iconColor"] in colours]
    lines = [
        Line2D([], [], color=picture_panels.COLOURS[one["iconColor"]], linestyle=":")
        for one in notes
    ]
    figure.legend(
        lines, [one["name"].lower() for one in notes], loc="center right", frameon=False,
        bbox_to_anchor=(1, 1 - 55 / height), ncols=len(notes), fontsize=8.5, borderpad=0,
    )  # fmt: skip


def _paper(figure: Figure, box: tuple[float, float, float, float], title: str) -> None:
    left, top, width, tall = box
    _, height = figure.get_size_inches() * DPI
    figure.add_artist(
        Rectangle(
            (left / WIDTH, 1 - (top + tall) / height), width / WIDTH, tall / height,
            facecolor="white", edgecolor="#d8dee4", linewidth=0.8, zorder=-1,
        )
    )  # fmt: skip
    size = min(9, 1.02 * width / len(title))
    figure.text(
        (left + 8) / WIDTH, 1 - (top + 14) / height, title,
        fontsize=size, va="center", weight="bold",
    )  # fmt: skip


def _axes(figure: Figure, kind: str, box: tuple[float, float, float, float]) -> Axes:
    """Axes inside a panel, with room for its title, ticks and legend."""
    left, top, width, tall = box
    _, height = figure.get_size_inches() * DPI
    margins = {"stat": (8, 8, 8), "table": (10, 10, 8)}
    has_names = kind in ("barchart", "state-timeline")
    before, after, below = margins.get(kind, (125 if has_names else 80, 14, 24))
    return figure.add_axes(
        (
            (left + before) / WIDTH,
            1 - (top + tall - below) / height,
            (width - before - after) / WIDTH,
            (tall - below - 28) / height,
        )
    )


def answers_of(panel: dict[str, Any], server: Prometheus, uid: str) -> picture_panels.Answers:
    """What Grafana would receive for a panel."""
    step_s = TILE_S if uid == FLEET else STEP_S
    found = {}
    for target in panel["targets"]:
        expr = as_grafana_sends_it(target["expr"], SENT)
        if target.get("instant"):
            found[target["refId"]] = server.now(expr, time=str(NOW_S))
        else:
            found[target["refId"]] = server.over_time(expr, seconds=SHOWN_S, step=step_s, end=NOW_S)
    return found


def marks_of(board: dict[str, Any], server: Prometheus) -> list[tuple[float, str]]:
    """Times and colours of the marks."""
    found = []
    for note in board["annotations"]["list"]:
        expr = as_grafana_sends_it(note["expr"], SENT)
        for one in server.over_time(expr, seconds=SHOWN_S, step=60, end=NOW_S):
            if note.get("useValueForTime"):
                times = {float(value) / 1000 for _, value in one["values"]}
            else:  # Grafana makes one mark of consecutive points
                every = {at for at, _ in one["values"]}
                times = {at for at in every if at - 60 not in every}
            found += [(at, note["iconColor"]) for at in times]
    return sorted(set(found))


def _png(figure: Figure) -> bytes:
    """With few colours, so that it is small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def write_all(folder: Path) -> None:
    """Write all pictures into a folder."""
    mpl.rcParams["text.parse_math"] = False
    with (
        tempfile.TemporaryDirectory() as data,
        prometheus_after(Hours(), Path(data)) as server,
    ):
        for name in PICTURES:
            (folder / f"{name}.png").write_bytes(picture(name, server))
