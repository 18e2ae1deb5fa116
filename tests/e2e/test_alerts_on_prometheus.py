"""The alerts on a real Prometheus that scrapes real daemons, with minutes that last four seconds.

``tests/unit/prometheus`` tests each rule; ``make soak`` watches a healthy daemon at the default
intervals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.hurried_daemon import ROOT, HurriedDaemon, started_training
from tests.e2e.prometheus_server import Prometheus, running_prometheus, wait_until
from tests.needs import needed

PROGRAM = Path(__file__).with_name("steady_training.py")
KINDS = ("steady", "hangs", "stops:train_step", "scribbles")
"""What each training run does, by the number of its GPU."""
HURRY = 15
"""How many seconds of a rule pass in one."""
LEAVES = "monitoring/gpumon"
ON_RUNS = "Gpumon(GPUStarved|GPUStarvationSuspected|TrainingHangs)"
"""Those on the daemon itself compare ages in real seconds, which cannot be hurried."""

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]


def hurried(rules: str) -> str:
    """Prometheus rules in which every minute, hour and day passes so much faster."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[1]) * {"m": 60, "h": 3600, "d": 86_400}[found[2]]
        return f"{seconds // HURRY}s"

    often = rules.replace("interval: 1h", "interval: 1m")  # or the test lasts minutes
    return re.sub(r"(?<=[\[ :])(\d+)([mhd])(?=[\]\s)]|$)", shorter, often, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def discovery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("discovery") / "targets.json"


@pytest.fixture(scope="module")
def prometheus(discovery: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It watches the training runs of one daemon, and a healthy daemon that is discovered."""
    folder = tmp_path_factory.mktemp("alerts")
    rules = []
    for name in ("rules.yml", "alerts.yml"):
        rules.append(folder / name)
        text = (ROOT / "prometheus" / name).read_text(encoding="utf-8")
        rules[-1].write_text(hurried(text), encoding="utf-8")
    with ExitStack() as stack:
        runs = HurriedDaemon(tmp_path_factory.mktemp("runs"), gpus=len(KINDS))
        healthy = RunningDaemon(tmp_path_factory.mktemp("healthy"), "--source", "simulated:healthy")
        stack.enter_context(runs)
        stack.enter_context(healthy)
        for gpu, kind in enumerate(KINDS):
            name = kind.replace(":", "-")
            stack.enter_context(started_training(runs, PROGRAM, name, gpu, kind))
        discovery.write_text(
            json.dumps([{"targets": [healthy.address], "labels": {"instance": "healthy"}}])
        )
        often = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        found = [{"files": [str(discovery)], "refresh_interval": "1s"}]
        watched = [{"targets": [runs.address], "labels": {"instance": "runs"}}]
        jobs = [
            {"job_name": "gpumon", **often, "static_configs": watched},
            {"job_name": LEAVES, **often, "file_sd_configs": found},
        ]
        yield stack.enter_context(
            running_prometheus(
                needed("prometheus"), folder, jobs, rules=tuple(rules), evaluation_interval="1s"
            )
        )


def test_runs_that_make_no_progress_raise_one_alert_and_it_is_for_the_one_that_hangs(
    prometheus: Prometheus,
) -> None:
    def firing() -> list[tuple[str, str | None]]:
        alerts = prometheus.alerts(ON_RUNS)
        return [
            (one["alertname"], one.get("run")) for one in alerts if one["alertstate"] == "firing"
        ]

    wait_until("it fires", firing, seconds=120)
    assert firing() == [("GpumonTrainingHangs", "hangs")]


def test_a_healthy_daemon_raises_none_and_every_rule_is_evaluated(prometheus: Prometheus) -> None:
    assert {one["metric"]["instance"] for one in prometheus.now("up == 1")} == {"runs", "healthy"}
    assert [one for one in prometheus.alerts() if one["instance"] == "healthy"] == []
    assert prometheus.troubles_of_rules() == {}


def test_a_daemon_that_leaves_discovery_is_missed(prometheus: Prometheus, discovery: Path) -> None:
    discovery.write_text("[]")

    def missed() -> list[dict[str, str]]:
        return [one for one in prometheus.alerts("GpumonDown") if one["instance"] == "healthy"]

    wait_until("an alert is pending or fires", missed, seconds=60)
    assert {one["job"] for one in missed()} == {LEAVES}
