"""Write ``dashboards/gpu-starvation.json``: ``python -m grafana.generate``.

The JSON is committed, and a test compares it with a new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from grafana import panels, queries

TARGET: Final = Path(__file__).parent / "dashboards" / "gpu-starvation.json"
PANELS: Final = (
    panels.lost_share,
    panels.culprit,
    panels.use_of_time,
    panels.causes,
    panels.reasons,
    panels.gaps,
    panels.per_gpu,
)
FILL_PANELS: Final = (panels.filling, panels.power, panels.held_down, panels.xid_errors)


def _choice(name: str, label: str, query: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(panels.SOURCE)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .include_all(True)
        .all_value(".+")
        .multi(True)
        .current(model.VariableOption(text="All", value="$__all"))
    )


def dashboard() -> build.Dashboard:
    """The complete dashboard."""
    whole = (
        build.Dashboard("GPU starvation")
        .uid("gpumon-starvation")
        .description("How much GPU time is lost, why, and on which GPU. Made by gpumon.")
        .tags(["gpu", "gpumon", "training"])
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .editable()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(_choice("job", "Job", "label_values(gpumon_build_info, job)"))
        .with_variable(
            _choice("instance", "Machine", 'label_values(gpumon_build_info{job=~"$job"}, instance)')
        )
        .with_variable(_choice("gpu", "GPU", queries.GPU_CHOICES).regex(queries.GPU_CHOICES_REGEX))
        .annotation(
            build.AnnotationQuery()
            .name("Alerts")
            .datasource(panels.SOURCE)
            .expr(queries.FIRING)
            .enable(True)
            .icon_color("red")
        )
    )
    for make in PANELS:
        whole = whole.with_panel(make())
    whole = whole.with_row(build.Row("How full the GPUs are, and what slows them down").id(11))
    for make_more in FILL_PANELS:
        whole = whole.with_panel(make_more())
    return whole


def _without_nulls(value: object) -> object:
    """Remove nulls, which Grafana reads as settings.

    In the first step of thresholds, null is minus infinity and stays.
    """
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"value", "color"}:
        return value
    return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}


def dashboard_json() -> str:
    """The dashboard as the text of its file."""
    plain = json.loads(JSONEncoder(sort_keys=True).encode(dashboard().build()))
    return json.dumps(_without_nulls(plain), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    TARGET.write_text(dashboard_json(), encoding="utf-8")
    print(f"wrote {TARGET}")
