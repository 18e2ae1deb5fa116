"""Draw pictures of the dashboards: ``python -m grafana.pictures`` writes ``docs/images``.

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
from matplotlib.patches import Rectangle
from PIL import Image

from grafana import picture_panels
from tests.builders.scripted_hosts import Hours
from tests.dashboard_file import BOARDS, FLEET, VARIABLES, as_grafana_sends_it
from tests.e2e.prometheus_server import Prometheus
from tests.e2e.scripted_prometheus import NOW_S, SENT, SHOWN_S, prometheus_after

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "images"
WIDTH: Final = 1400
UNIT: Final = 30
"""Pixels of one line of the grid."""
HEAD: Final = 50
GAP: Final = 4
DPI: Final = 100
STEP_S: Final = 15
TILE_S: Final = 300
NOTE: Final = "not Grafana: drawn by matplotlib from the same queries, after a scripted half hour"


def picture(uid: str, server: Prometheus) -> bytes:
    """A dashboard as a PNG."""
    board = BOARDS[uid]
    lines = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in board["panels"])
    height = HEAD + lines * UNIT
    figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor="#f4f5f5")
    figure.text(0.008, 1 - 18 / height, board["title"], fontsize=14, va="center", weight="bold")
    figure.text(0.008, 1 - 38 / height, NOTE, fontsize=9, va="center", color="#c4162a")
    figure.text(1 - 0.008, 1 - 18 / height, chosen(board), va="center", ha="right", fontsize=9)
    notes = marks_of(board, server)
    for panel in board["panels"]:
        place = panel["gridPos"]
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
    return "     ".join([*texts, "Last 30 minutes"])


def _paper(figure: Figure, box: tuple[float, float, float, float], title: str) -> None:
    left, top, width, tall = box
    _, height = figure.get_size_inches() * DPI
    figure.add_artist(
        Rectangle(
            (left / WIDTH, 1 - (top + tall) / height), width / WIDTH, tall / height,
            facecolor="white", edgecolor="#d8dee4", linewidth=0.8, zorder=-1,
        )
    )  # fmt: skip
    figure.text(
        (left + 8) / WIDTH, 1 - (top + 14) / height, title, fontsize=9, va="center", weight="bold"
    )


def _axes(figure: Figure, kind: str, box: tuple[float, float, float, float]) -> Axes:
    """Axes inside a panel, with room for its title, ticks and legend."""
    left, top, width, tall = box
    _, height = figure.get_size_inches() * DPI
    margins = {"stat": (8, 8, 8), "table": (10, 10, 8)}
    has_names = kind in ("barchart", "state-timeline")
    before, after, below = margins.get(kind, (125 if has_names else 80, 14, 62))
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
            at, value = one["values"][0]
            found.append((float(value) / 1000 if note.get("useValueForTime") else at, note))
    return [(at, note["iconColor"]) for at, note in found]


def _png(figure: Figure) -> bytes:
    """With few colours, so that it is small."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(128).save(small, format="png", optimize=True)
    return small.getvalue()


def main() -> None:
    """Write one picture for each dashboard."""
    mpl.rcParams["text.parse_math"] = False
    with (
        tempfile.TemporaryDirectory() as folder,
        prometheus_after(Hours(), Path(folder)) as server,
    ):
        for uid in BOARDS:
            path = FOLDER / f"{uid}.png"
            path.write_bytes(picture(uid, server))
            print(f"wrote {path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
