"""The dashboard's JSON is generated, complete, and valid for promtool."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumon.outlets.metrics.metric_table import METRICS
from tests.dashboard_file import FILE, Target, as_grafana_sends_it, dashboard, panels, targets
from tests.needs import missing, needed

METRIC = re.compile(r"\bgpumon_[a-z0-9_]+")


def titled(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def exposed_names() -> set[str]:
    names = {metric.name for metric in METRICS}
    return names | {f"{name}_bucket" for name in names if name.endswith("gap_seconds")}


class TestTheFile:
    def test_is_what_the_generator_writes(self) -> None:
        if sys.version_info < (3, 11):
            missing("Grafana's builders need Python 3.11")
        generate = pytest.importorskip("grafana.generate", exc_type=ImportError)

        assert generate.dashboard_json() == FILE.read_text(encoding="utf-8"), "run: make golden"

    def test_uses_the_selected_data_source_job_machine_and_gpu(self) -> None:
        uids = set(re.findall(r'"uid": "([^"]+)"', FILE.read_text(encoding="utf-8")))
        variables = [variable["name"] for variable in dashboard()["templating"]["list"]]

        assert uids == {"${datasource}", "gpumon-starvation"}
        assert variables == ["datasource", "job", "instance", "gpu"]


class TestThePanels:
    @pytest.mark.parametrize("panel", panels(), ids=titled)
    def test_have_a_description_and_a_unit_for_every_value(self, panel: dict[str, Any]) -> None:
        config = panel["fieldConfig"]
        of_panel = config["defaults"].get("unit")
        of_columns = [
            setting["value"]
            for override in config["overrides"]
            for setting in override["properties"]
            if setting["id"] == "unit"
        ]

        assert len(panel["description"]) > 60
        assert of_panel or len(of_columns) >= len(panel["targets"]) - 1

    def test_fill_the_grid_without_overlap(self) -> None:
        cells = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels())
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]

        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24

    def test_name_gpus_by_index_and_model(self) -> None:
        title = "Length of the pauses"
        panel = next(panel for panel in panels() if titled(panel) == title)

        for target in panel["targets"]:
            assert "{{gpu}} {{name}}" in target["legendFormat"]
            assert "group_left(gpu, name) gpumon_gpu_info" in target["expr"]


class TestTheExpressions:
    @pytest.mark.parametrize("target", targets(), ids=str)
    def test_use_exported_metrics_of_the_chosen_gpus_over_the_windows_of_the_dashboard(
        self, target: Target
    ) -> None:
        selectors = re.findall(r"gpumon_[a-z0-9_]+(\{[^}]*\})?", target.expr)
        windows = set(re.findall(r"\[([^\]]+)\]", target.expr))

        assert set(METRIC.findall(target.expr)) - exposed_names() == set()
        assert selectors
        for selector in selectors:
            assert selector.startswith('{job=~"$job",instance=~"$instance",uuid=~"$gpu"')
        assert windows <= {"$__range" if target.is_instant else "$__rate_interval"}
        assert "avg_over_time" not in target.expr  # averages of gauges depend on the scrapes

    @pytest.mark.prometheus
    def test_are_valid_for_promtool(self, tmp_path: Path) -> None:
        promtool = needed("promtool", "prometheus")
        rules = [
            {"record": f"panel:{number}", "expr": as_grafana_sends_it(target.expr)}
            for number, target in enumerate(targets())
        ]
        written = tmp_path / "panels.yml"
        written.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))

        checked = subprocess.run(
            [promtool, "check", "rules", str(written)], capture_output=True, text=True, check=False
        )

        assert checked.returncode == 0, checked.stderr
        assert f"{len(rules)} rules found" in checked.stdout
