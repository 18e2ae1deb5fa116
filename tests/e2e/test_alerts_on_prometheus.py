"""The alerts on a real Prometheus that scrapes a real, healthy daemon, at two moments of a minute.

``make soak`` has the same for eight minutes at Prometheus' own intervals.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.prometheus_server import Prometheus, running_prometheus, wait_until
from tests.needs import needed

FOLDER = Path(__file__).resolve().parents[2] / "prometheus"
SCRAPED = "50s"
"""The first scrape comes within it. An age by the clock of whoever evaluates passes 30 s until the
next one, wherever in the minute that is."""
WATCHED_SECONDS = 90
LEAVES = "monitoring/gpumon"

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]


@pytest.fixture(scope="module")
def discovery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("discovery") / "targets.json"


def hurried_rules(folder: Path) -> tuple[Path, ...]:
    """The rules, with a roll call each two seconds and not each minute."""
    copies = []
    for name in ("rules.yml", "alerts.yml"):
        text = (FOLDER / name).read_text(encoding="utf-8")
        copies.append(folder / name)
        copies[-1].write_text(text.replace("interval: 1m", "interval: 2s"), encoding="utf-8")
    return tuple(copies)


@pytest.fixture(scope="module")
def prometheus(discovery: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("alerts")
    with RunningDaemon(folder, "--source", "simulated:healthy") as daemon:
        machines = [
            {"targets": [daemon.address], "labels": {"instance": f"machine-{number}"}}
            for number in range(2)
        ]
        discovery.write_text(
            json.dumps([{"targets": [daemon.address], "labels": {"instance": "leaves"}}])
        )
        jobs = [
            {"job_name": "gpumon", "scrape_interval": SCRAPED, "static_configs": machines},
            {
                "job_name": LEAVES,
                "scrape_interval": "2s",
                "scrape_timeout": "2s",
                "file_sd_configs": [{"files": [str(discovery)], "refresh_interval": "1s"}],
            },
        ]
        with running_prometheus(
            needed("prometheus"),
            folder,
            jobs,
            rules=hurried_rules(folder),
            evaluation_interval="2s",
        ) as server:
            yield server


def test_a_healthy_daemon_raises_nothing_and_nothing_is_pending(prometheus: Prometheus) -> None:
    time.sleep(WATCHED_SECONDS)

    assert {one["metric"]["instance"] for one in prometheus.now("up == 1")} == {
        "machine-0",
        "machine-1",
        "leaves",
    }
    assert prometheus.alerts() == []
    assert prometheus.troubles_of_rules() == {}
    assert prometheus.value('count(instance_uuid:gpumon_gpu_info:last1d{job="gpumon"})') == 4


def test_one_that_leaves_discovery_is_missed_though_its_job_is_called_otherwise(
    prometheus: Prometheus, discovery: Path
) -> None:
    discovery.write_text("[]")

    wait_until("an alert is pending", prometheus.alerts, seconds=60)

    (alert,) = prometheus.alerts()
    assert (alert["alertname"], alert["alertstate"]) == ("GpumonDown", "pending")
    assert (alert["job"], alert["instance"]) == (LEAVES, "leaves")
