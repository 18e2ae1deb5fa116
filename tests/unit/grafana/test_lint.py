"""The linter of the dashboards finds each fault that is put into one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from grafana import lint
from tests.dashboard_file import BOARDS, FLEET, HOST, RUN

Fault: TypeAlias = Callable[[dict[str, Any]], object]


def first_panel(board: dict[str, Any]) -> dict[str, Any]:
    return lint.panels(board)[0]


def first_target(board: dict[str, Any]) -> dict[str, Any]:
    target: dict[str, Any] = first_panel(board)["targets"][0]
    return target


def sets(**changes: str) -> Fault:
    return lambda board: first_panel(board).update(changes)


def asks(expr: str) -> Fault:
    return lambda board: first_target(board).update(expr=f"{expr} * 0")


def first_cell_link(board: dict[str, Any]) -> dict[str, Any]:
    links = [
        setting["value"][0]
        for panel in lint.panels(board)
        for override in panel["fieldConfig"]["overrides"]
        for setting in override["properties"]
        if setting["id"] == "links"
    ]
    first: dict[str, Any] = links[0]
    return first


FAULTS: dict[str, tuple[str, Fault, str]] = {
    "a fixed data source": (
        HOST,
        lambda board: first_target(board).update(datasource={"uid": "gpumon-prometheus"}),
        "data-source",
    ),
    "no input for the import": (HOST, lambda board: board["__inputs"].clear(), "data-source"),
    "a panel that provisioning cannot resolve": (
        HOST,
        lambda board: first_target(board).update(datasource={"uid": "${DS_PROMETHEUS}"}),
        "data-source",
    ),
    "no description": (RUN, sets(description=""), "description"),
    "no unit": (
        RUN,
        lambda board: first_panel(board)["fieldConfig"]["defaults"].pop("unit"),
        "unit",
    ),
    "a reassuring text where data is missing": (
        RUN,
        lambda board: first_panel(board)["fieldConfig"]["defaults"].update(noValue="0"),
        "no-data",
    ),
    "nothing to see while nothing is in use": (
        RUN,
        lambda board: [one.update(expr="1") for one in first_panel(board)["targets"]],
        "empty-state",
    ),
    "two panels of one title": (RUN, sets(title="Steps"), "title"),
    "a fixed window": (HOST, asks("sum(rate(gpumon_nvml_calls_total[7m]))"), "window"),
    "steps shorter than a tile": (
        FLEET,
        asks("sum_over_time(cause:gpumon_gpu_lost_seconds:increase${tile}[$__interval])"),
        "tile",
    ),
    "a counter itself": (HOST, asks('sum(gpumon_samples_total{instance=~"$host"})'), "counter"),
    "the rate of a gauge": (
        HOST,
        asks('rate(gpumon_gpu_power_watts{instance=~"$host"}[$__range])'),
        "counter",
    ),
    "the mean of a gauge": (
        HOST,
        asks('avg_over_time(gpumon_gpu_power_watts{instance=~"$host"}[$__range])'),
        "counter",
    ),
    "all hosts on the dashboard of one": (HOST, asks("max(gpumon_gpu_power_watts)"), "bounded"),
    "all GPUs on the dashboard of a run": (
        RUN,
        asks("max(gpumon_gpu_power_watts * on(uuid) gpumon_gpu_job_info{run=~'$run'})"),
        "bounded",
    ),
    "series of GPUs on the dashboard of a fleet": (
        FLEET,
        asks("max(gpumon_gpu_power_watts)"),
        "bounded",
    ),
    "a join by GPU on the dashboard of a fleet": (
        FLEET,
        asks("max(ALERTS * on(uuid) ALERTS)"),
        "bounded",
    ),
    "an unknown variable": (FLEET, asks("sum(up{job=~'$cluster'})"), "variable"),
    "a link that forgets the time": (
        FLEET,
        lambda board: first_cell_link(board).update(url="/d/gpumon-host?var-host=a"),
        "link",
    ),
    "a link to no dashboard": (
        FLEET,
        lambda board: first_cell_link(board).update(url="/d/gpumon-rack"),
        "link",
    ),
    "a link with a variable of no use": (
        FLEET,
        lambda board: first_cell_link(board).update(
            url="/d/gpumon-host?${__url_time_range}&${__all_variables}&var-machine=a"
        ),
        "link",
    ),
    "a header that forgets the variables": (
        RUN,
        lambda board: board["links"][0].update(includeVars=False),
        "link",
    ),
    "two panels in one place": (
        RUN,
        lambda board: first_panel(board)["gridPos"].update(w=24),
        "grid",
    ),
}


class TestTheLinter:
    @pytest.mark.parametrize("name", FAULTS)
    def test_finds(self, name: str) -> None:
        uid, put_into, rule = FAULTS[name]
        boards = copy.deepcopy(BOARDS)
        put_into(boards[uid])

        new = set(lint.findings(boards)) - set(lint.findings(BOARDS))

        assert rule in {finding.rule for finding in new}
        assert all(finding.where.startswith(uid) for finding in new)
