"""Write ``dashboards/*.json``: ``python -m grafana.generate``.

The JSON is committed, and a test compares it with a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana import fleet, host, run
from grafana.parts import FLEET_UID, HOST_UID, RUN_UID

FOLDER: Final = Path(__file__).parent / "dashboards"
DASHBOARDS: Final[dict[str, Callable[[], build.Dashboard]]] = {
    FLEET_UID: fleet.dashboard,
    HOST_UID: host.dashboard,
    RUN_UID: run.dashboard,
}
"""By UID, which is the name of the file."""

# What the SDK has no words for. The import of a file asks for __inputs and replaces
# ${DS_PROMETHEUS}, which is only the initial value of a variable; a provisioned file keeps it, and
# Grafana then chooses a data source itself, because no source has that name.
_INPUTS: Final = [
    {
        "name": "DS_PROMETHEUS",
        "label": "Prometheus",
        "description": "The Prometheus that scrapes gpumon",
        "type": "datasource",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }
]
_REQUIRES: Final = [
    {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.0.0"},
    {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
]
_TEXTS: Final = {
    "Alerts": {"titleFormat": "{{alertname}}", "textFormat": "{{instance}} {{run}} GPU {{gpu}}"},
    "Run starts": {"titleFormat": "{{run}} started", "textFormat": "", "useValueForTime": True},
    "Epochs": {"titleFormat": "{{run}}: new epoch", "textFormat": ""},
    "Ratio changes": {"titleFormat": "{{run}}: new shares of the batch", "textFormat": ""},
}
_STEP: Final = "60s"


def without_nulls(value: object) -> object:
    """Remove nulls, which Grafana reads as settings.

    In the first step of thresholds, null is minus infinity and stays.
    """
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"value", "color"}:
        return value
    return {key: without_nulls(inner) for key, inner in value.items() if inner is not None}


def sdk_json(uid: str) -> dict[str, Any]:
    """A dashboard as the SDK writes it, without nulls."""
    plain = json.loads(JSONEncoder(sort_keys=True).encode(DASHBOARDS[uid]().build()))
    cleaned = without_nulls(plain)
    assert isinstance(cleaned, dict)
    return cleaned


def dashboard_json(uid: str) -> str:
    """A dashboard as the text of its file."""
    whole = sdk_json(uid)
    for note in whole["annotations"]["list"]:
        # Old versions of Grafana read `expr` and `step`, new ones the target.
        target = {"refId": "Anno", "expr": note["expr"], "interval": _STEP}
        note.update(_TEXTS[note["name"]], step=_STEP, target=target)
    whole |= {"__inputs": _INPUTS, "__requires": _REQUIRES}
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name in DASHBOARDS:
        path = FOLDER / f"{name}.json"
        path.write_text(dashboard_json(name), encoding="utf-8")
        print(f"wrote {path}")
