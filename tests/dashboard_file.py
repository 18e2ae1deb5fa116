"""The dashboards, as Grafana reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from grafana import lint

FLEET: Final = lint.FLEET
HOST: Final = lint.HOST
RUN: Final = lint.RUN

VARIABLES: Final = {
    "__rate_interval": "10s",
    "__range": "30s",
    "__range_s": "30",
    "__interval": "5m",
    "__interval_ms": "300000",
    "tile": "5m",
    "job": "gpumon",
    "host": ".+",
    "gpu": ".+",
    "run": ".+",
    "run_gpu": ".+",
    "price": "2.50",
    "kwh_price": "0.30",
    "co2": "400",
}
"""All is selected, over a short time."""
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$([a-z_]\w*)")


@dataclass(frozen=True)
class Target:
    """A query of a panel, a variable or an annotation."""

    board: str
    panel: str
    ref: str
    expr: str
    is_instant: bool

    def __str__(self) -> str:
        return f"{self.board} {self.panel} {self.ref}"


BOARDS: Final = lint.dashboards()


def dashboard(uid: str) -> dict[str, Any]:
    return BOARDS[uid]


def panels(uid: str) -> list[dict[str, Any]]:
    return lint.panels(BOARDS[uid])


def panel_titled(uid: str, title: str) -> dict[str, Any]:
    return next(panel for panel in panels(uid) if panel["title"] == title)


def targets(uid: str) -> list[Target]:
    return [
        Target(uid, panel["title"], target["refId"], target["expr"], bool(target.get("instant")))
        for panel in panels(uid)
        for target in panel["targets"]
    ]


def other_queries(uid: str) -> list[Target]:
    """Queries of variables and annotations."""
    notes = [
        Target(uid, note["name"], "annotation", note["expr"], False)
        for note in BOARDS[uid]["annotations"]["list"]
    ]
    return notes + [
        Target(uid, f"${one['name']}", "variable", promql_of_variable(one["query"]), True)
        for one in BOARDS[uid]["templating"]["list"]
        if one["type"] == "query"
    ]


def promql_of_variable(query: str) -> str:
    """What Grafana asks Prometheus for the values of a variable."""
    if found := re.fullmatch(r"query_result\((.*)\)", query, re.DOTALL):
        return found[1]
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", query, re.DOTALL)
    assert found is not None, query
    return f"group by ({found[2]}) ({found[1]})"


def everything() -> list[Target]:
    return [target for uid in BOARDS for target in targets(uid) + other_queries(uid)]


def as_grafana_sends_it(expr: str, values: Mapping[str, str] | None = None) -> str:
    """The expression with these values of variables, and of ``VARIABLES`` for others."""
    known = {**VARIABLES, **(values or {})}
    return _VARIABLE.sub(lambda found: known[found[1] or found[2]], expr)
