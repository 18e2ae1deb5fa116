"""A real run of three seconds, on a real daemon, between two scrapes of two Prometheis.

The tiles of both have all of it, though the daemon holds a new counter at 0 only until it is first
scraped: the second Prometheus may never see the 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.fleet_block import tiles_of_counters
from tests.daemon import FollowingDaemon
from tests.e2e.hurried_daemon import started_training
from tests.e2e.prometheus_server import Prometheus, started_prometheus, wait_until
from tests.needs import needed

TRAINING = """
import sys, time
from pathlib import Path
from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans
with BusySpans(Path(sys.argv[1]), int(sys.argv[2])) as device:
    for _ in range(10):
        with phase("input_wait"):
            time.sleep(0.1)
        with phase("train_step"):
            device.sleep(0.2)
        step()
"""
SCRAPE_EVERY_S = 15
REPLICAS = ("a", "b", "c")
OF_RUN = {
    "run:gpumon_training_gpu_busy_seconds": "gpumon_training_gpu_busy_seconds_total",
    "run_cause:gpumon_training_gpu_lost_seconds": "gpumon_training_gpu_idle_seconds_total",
}

pytestmark = [pytest.mark.soak, pytest.mark.prometheus]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FollowingDaemon]:
    with FollowingDaemon(tmp_path) as running:
        yield running


@pytest.fixture
def servers(daemon: FollowingDaemon, tmp_path: Path) -> Iterator[list[Prometheus]]:
    """They scrape at moments that depend on their external labels."""
    with ExitStack() as stack:
        found = []
        for replica in REPLICAS:
            folder = tmp_path / replica
            folder.mkdir()
            often = {"scrape_interval": f"{SCRAPE_EVERY_S}s", "scrape_timeout": "5s"}
            document = {
                "global": {"external_labels": {"replica": replica}, **often},
                "scrape_configs": [
                    {"job_name": "gpumon", "static_configs": [{"targets": [daemon.address]}]}
                ],
            }
            server = started_prometheus(needed("prometheus"), folder, document)
            found.append(stack.enter_context(server))
        yield found


def test_is_in_the_tiles_of_each(
    daemon: FollowingDaemon, servers: list[Prometheus], tmp_path: Path
) -> None:
    for server in servers:
        wait_until(
            "it was scraped twice",
            lambda server=server: server.value("count_over_time(gpumon_build_info[5m])") >= 2,
            seconds=4 * SCRAPE_EVERY_S,
        )
    program = tmp_path / "train.py"
    program.write_text(TRAINING, encoding="utf-8")
    with started_training(daemon, program, "short", 0) as run:
        assert run.wait(60) == 0
    time.sleep(4 * SCRAPE_EVERY_S)
    at_s = str(time.time() + 60)  # a tile ends a minute before

    counters = {name: value for name, value in daemon.metrics().items() if 'run="short"' in name}
    for tile, counter in OF_RUN.items():
        truth_s = sum(
            value
            for name, value in counters.items()
            if name.startswith(counter) and "not_in_use" not in name
        )
        assert truth_s > 0.5, (tile, counters)
        expression = tiles_of_counters()[tile]
        for server in servers:
            found_s = [
                float(one["value"][1])
                for one in server.now(expression, time=at_s)
                if one["metric"].get("run") == "short"
            ]
            assert sum(found_s) == pytest.approx(truth_s, rel=0.01), tile
