"""The dashboard, as Grafana reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "grafana" / "dashboards" / "gpu-starvation.json"


@dataclass(frozen=True)
class Target:
    """A query of a panel."""

    panel: str
    ref: str
    expr: str
    is_instant: bool

    def __str__(self) -> str:
        return f"{self.panel} {self.ref}"


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def targets() -> list[Target]:
    return [
        Target(panel["title"], target["refId"], target["expr"], bool(target.get("instant")))
        for panel in panels()
        for target in panel["targets"]
    ]


def as_grafana_sends_it(expr: str, *, shown: str = "30s", rate: str = "10s") -> str:
    """The expression with all machines and GPUs selected."""
    for variable, value in (
        ("$__rate_interval", rate),
        ("$__range", shown),
        ("$job", ".+"),
        ("$instance", ".+"),
        ("$gpu", ".+"),
    ):
        expr = expr.replace(variable, value)
    assert "$" not in expr, f"an unknown variable: {expr}"
    return expr
