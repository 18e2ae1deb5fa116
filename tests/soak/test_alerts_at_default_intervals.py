"""A healthy daemon under a Prometheus as it comes: scraped and evaluated once a minute.

Eight targets are scraped at eight moments of the minute, as Prometheus takes the moment from a
target's labels; evaluated is at one. For four of the eight, a scrape is then older than 30 s.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.prometheus_server import running_prometheus
from tests.needs import needed

FOLDER = Path(__file__).resolve().parents[2] / "prometheus"
WATCHED_SECONDS = 8 * 60

pytestmark = [pytest.mark.soak, pytest.mark.prometheus]


def test_a_healthy_machine_is_left_in_peace_at_the_intervals_of_prometheus(tmp_path: Path) -> None:
    with RunningDaemon(tmp_path, "--source", "simulated:healthy") as daemon:
        machines = [
            {"targets": [daemon.address], "labels": {"instance": f"machine-{number}"}}
            for number in range(8)
        ]
        jobs = [{"job_name": "gpumon", "scrape_interval": "1m", "static_configs": machines}]
        rules = (FOLDER / "rules.yml", FOLDER / "alerts.yml")
        with running_prometheus(needed("prometheus"), tmp_path, jobs, rules=rules) as server:
            time.sleep(WATCHED_SECONDS)
            ages = "time() - timestamp(up)"
            spread_s = sorted(float(one["value"][1]) for one in server.now(ages))
            alerts, troubles = server.alerts(), server.troubles_of_rules()
            scraped = server.value('min(count_over_time(up{job="gpumon"}[8m]))')

    print(f"ages of the scrapes: {' '.join(f'{age:.0f}' for age in spread_s)} s")
    assert len(spread_s) == 8
    assert spread_s[-1] - spread_s[0] > 20
    assert scraped >= 7
    assert alerts == []
    assert troubles == {}
