"""The dashboards' JSON is generated, complete, and valid for promtool."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.outlets.metrics.metric_table import METRICS
from grafana import lint
from grafana.fleet_queries import HOST_OF_INSTANCE
from tests.dashboard_file import BOARDS, as_grafana_sends_it, everything
from tests.needs import missing, needed

RULES = (lint.FOLDER.parents[1] / "prometheus" / "rules.yml").read_text(encoding="utf-8")
OF_PROMETHEUS = {"ALERTS", "up"}
# What the SDK cannot express, by the place in the JSON: `grafana.generate` adds these.
BEYOND_THE_SDK = {"__inputs", "__requires"}
OF_ANNOTATIONS_BEYOND_THE_SDK = {"step", "target", "textFormat", "titleFormat", "useValueForTime"}


def builders() -> Any:
    if sys.version_info < (3, 11):
        missing("Grafana's builders need Python 3.11")
    return pytest.importorskip("grafana.generate", exc_type=ImportError)


def exported_names() -> set[str]:
    names = {metric.name for metric in METRICS}
    gaps = {name for name in names if name.endswith("gap_seconds")}
    return names | {f"{name}_{part}" for name in gaps for part in ("bucket", "count")}


def recorded_names() -> Iterator[str]:
    for line in RULES.splitlines():
        if "- record: " in line:
            yield line.split("- record: ")[1].strip()


class TestTheFiles:
    @pytest.mark.parametrize("uid", sorted(BOARDS))
    def test_are_what_the_generator_writes(self, uid: str) -> None:
        written = (lint.FOLDER / f"{uid}.json").read_text(encoding="utf-8")

        assert builders().dashboard_json(uid) == written, "run: make golden"

    def test_are_three_and_no_others(self) -> None:
        assert set(BOARDS) == set(builders().DASHBOARDS)
        assert {path.stem for path in lint.FOLDER.iterdir()} == set(BOARDS)

    @pytest.mark.parametrize("uid", sorted(BOARDS))
    def test_lose_nothing_in_the_schema_of_the_sdk(self, uid: str) -> None:
        builders()
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard

        from grafana.generate import without_nulls

        board = json.loads(json.dumps(BOARDS[uid]))
        for key in BEYOND_THE_SDK:
            del board[key]
        for note in board["annotations"]["list"]:
            for key in OF_ANNOTATIONS_BEYOND_THE_SDK:
                note.pop(key, None)

        again = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))

        assert without_nulls(again) == board


class TestTheLinter:
    def test_finds_nothing_but_what_is_excluded_with_a_reason(self) -> None:
        found = lint.findings(BOARDS)

        assert [one for one in found if (one.where, one.rule) not in lint.EXCLUSIONS] == []
        assert lint.EXCLUSIONS.keys() - {(one.where, one.rule) for one in found} == set()
        assert all(len(reason) > 10 for reason in lint.EXCLUSIONS.values())


class TestTheExpressions:
    def test_use_exported_and_recorded_series_only(self) -> None:
        used = {name for target in everything() for name, _ in lint.selectors(target.expr)}
        names = {
            name.replace("$tile", tile) for name in used for tile in ("5m", "1h")
        } - OF_PROMETHEUS

        assert names - exported_names() - set(recorded_names()) == set()

    def test_name_hosts_as_the_recording_rules_do(self) -> None:
        assert f"            {HOST_OF_INSTANCE}\n" in RULES

    @pytest.mark.prometheus
    def test_are_valid_for_promtool(self, tmp_path: Path) -> None:
        promtool = needed("promtool", "prometheus")
        rules = [
            {"record": f"panel:{number}", "expr": as_grafana_sends_it(target.expr)}
            for number, target in enumerate(everything())
        ]
        written = tmp_path / "panels.yml"
        written.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))

        checked = subprocess.run(
            [promtool, "check", "rules", str(written)], capture_output=True, text=True, check=False
        )

        assert checked.returncode == 0, checked.stderr
        assert f"{len(rules)} rules found" in checked.stdout
