"""Tests of the dashboard's JSON: generated, complete, and valid for promtool."""

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

UNITLESS = {"none"}
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

    def test_uses_only_the_selected_data_source(self) -> None:
        uids = set(re.findall(r'"uid": "([^"]+)"', FILE.read_text(encoding="utf-8")))

        assert uids == {"${datasource}", "gpumon-starvation"}

    def test_has_variables_for_data_source_job_machine_and_gpu(self) -> None:
        variables = [variable["name"] for variable in dashboard()["templating"]["list"]]

        assert variables == ["datasource", "job", "instance", "gpu"]


class TestThePanels:
    @pytest.mark.parametrize("panel", panels(), ids=titled)
    def test_have_a_description(self, panel: dict[str, Any]) -> None:
        assert len(panel["description"]) > 60

    @pytest.mark.parametrize("panel", panels(), ids=titled)
    def test_have_a_unit_for_every_value(self, panel: dict[str, Any]) -> None:
        config = panel["fieldConfig"]
        of_panel = config["defaults"].get("unit")
        of_columns = [
            setting["value"]
            for override in config["overrides"]
            for setting in override["properties"]
            if setting["id"] == "unit"
        ]

        assert of_panel or len(of_columns) >= len(panel["targets"]) - 1

    @pytest.mark.parametrize("panel", panels(), ids=titled)
    def test_fill_the_grid_without_overlap(self, panel: dict[str, Any]) -> None:
        def cells(one: dict[str, Any]) -> set[tuple[int, int]]:
            place = one["gridPos"]
            across = range(place["x"], place["x"] + place["w"])
            down = range(place["y"], place["y"] + place["h"])
            return {(x, y) for x in across for y in down}

        others = [cells(one) for one in panels() if one["id"] != panel["id"]]

        assert all(cells(panel).isdisjoint(taken) for taken in others)
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24

    @pytest.mark.parametrize(
        "title",
        [
            "Length of the pauses",
            "How full the GPUs are",
            "Power against its limit",
            "What holds the clocks down",
            "XID errors",
        ],
    )
    def test_name_gpus_by_index_and_model(self, title: str) -> None:
        panel = next(panel for panel in panels() if titled(panel) == title)

        assert panel["targets"]
        for target in panel["targets"]:
            assert "{{gpu}} {{name}}" in target["legendFormat"]
            assert "group_left(gpu, name) gpumon_gpu_info" in target["expr"]


class TestTheExpressions:
    @pytest.mark.parametrize("target", targets(), ids=str)
    def test_use_only_metrics_that_gpumon_exposes(self, target: Target) -> None:
        assert set(METRIC.findall(target.expr)) - exposed_names() == set()

    @pytest.mark.parametrize("target", targets(), ids=str)
    def test_select_the_chosen_gpus(self, target: Target) -> None:
        selectors = re.findall(r"gpumon_[a-z0-9_]+(\{[^}]*\})?", target.expr)

        assert selectors
        for selector in selectors:
            assert selector.startswith('{job=~"$job",instance=~"$instance",uuid=~"$gpu"')

    @pytest.mark.parametrize("target", targets(), ids=str)
    def test_use_the_windows_of_the_dashboard(self, target: Target) -> None:
        windows = set(re.findall(r"\[([^\]]+)\]", target.expr))

        assert windows <= {"$__range" if target.is_instant else "$__rate_interval"}

    @pytest.mark.parametrize("target", targets(), ids=str)
    def test_do_not_average_gauges(self, target: Target) -> None:
        assert "avg_over_time" not in target.expr
        assert "gpumon_gpu_utilization_ratio" not in target.expr

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
