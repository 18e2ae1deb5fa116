"""Engines beyond one Prometheus: an agent with remote write, federation, VictoriaMetrics.

Rules are hurried: their minutes last a second, so a tile is five seconds of scrapes every second.
"""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet_block import (
    RULES,
    TILE_S,
    FleetScript,
    Span,
    growth_of_tiles,
    key_of,
    tiles_of_counters,
    typical_jobs,
    write_raw,
)
from tests.daemon import RunningDaemon
from tests.e2e.prometheus_server import (
    Prometheus,
    fetched,
    started_prometheus,
    wait_until,
)
from tests.needs import needed
from tests.processes import ending
from tests.serving import free_port
from tests.waiting import PATIENCE_S

TILES = '{__name__=~".*:increase(5m|1h)|gpumon:.*:count(5m|1h)"}'
"""As docs/fleet.md shows it."""
LOST = "host_cause:gpumon_gpu_lost_seconds:increase5m"
OFTEN = {"scrape_interval": "1s", "scrape_timeout": "1s"}
AWAY_S = 5.0

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]


def remote_write(url: str) -> dict[str, Any]:
    patient = {"batch_send_deadline": "1s", "max_backoff": "1s"}
    return {"url": url, "queue_config": patient}


def points(server: Prometheus, series: str, *, seconds: int = 120) -> list[list[Any]]:
    """Times and values of the only such series."""
    (found,) = server.now(f"{series}[{seconds}s]")
    values: list[list[Any]] = found["values"]
    return values


class Fleet:
    """An agent that scrapes a daemon, and the receiver of what it writes."""

    def __init__(self, folder: Path, daemon: str, *others: str) -> None:
        self._folder, self._daemon, self._others = folder, daemon, others
        self._address = f"127.0.0.1:{free_port()}"

    @contextmanager
    def agent(self) -> Iterator[Prometheus]:
        """It keeps what it cannot write yet."""
        folder = self._folder / "agent"
        folder.mkdir()
        urls = [f"http://{self._address}/api/v1/write", *self._others]
        target = [{"targets": [self._daemon], "labels": {"instance": "a:19835"}}]
        document = {
            "scrape_configs": [{"job_name": "gpumon", **OFTEN, "static_configs": target}],
            "remote_write": [remote_write(url) for url in urls],
        }
        flags = ("--enable-feature=agent", f"--storage.agent.path={folder / 'wal'}")
        with started_prometheus(needed("prometheus"), folder, document, *flags) as server:
            yield server

    @contextmanager
    def receiver(self) -> Iterator[Prometheus]:
        """With the same data each time."""
        folder = self._folder / "receiver"
        folder.mkdir(exist_ok=True)
        rules = folder / "rules.yml"
        text = RULES.read_text(encoding="utf-8")
        rules.write_text(re.sub(r"(?<=[\[ ])(\d+)m(?=[\])\n])", r"\1s", text), encoding="utf-8")
        document = {"global": {"evaluation_interval": "1s"}, "rule_files": [str(rules)]}
        flag, address = "--web.enable-remote-write-receiver", self._address
        server = started_prometheus(needed("prometheus"), folder, document, flag, address=address)
        with server as running:
            yield running

    @contextmanager
    def federating(self) -> Iterator[Prometheus]:
        """Of all it has only tiles."""
        folder = self._folder / "federating"
        folder.mkdir()
        job = {
            "job_name": "federate",
            **OFTEN,
            "honor_labels": True,
            "metrics_path": "/federate",
            "params": {"match[]": [TILES]},
            "static_configs": [{"targets": [self._address]}],
        }
        document = {"scrape_configs": [job]}
        with started_prometheus(needed("prometheus"), folder, document) as server:
            yield server


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[Prometheus]:
    """It answers the API of Prometheus."""
    binary, address = needed("victoria-metrics"), f"127.0.0.1:{free_port()}"
    command = [
        binary,
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr={address}",
        "-memory.allowedBytes=256MB",
        "-search.latencyOffset=0s",
        "-search.disableCache",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        with ending(process):
            wait_until("it answers", lambda: fetched(f"http://{address}/health"), seconds=30)
            yield Prometheus(address)


def test_no_sample_is_lost_over_a_restart_of_the_receiver_and_tiles_are_federated(
    tmp_path: Path,
) -> None:
    (tmp_path / "victoria").mkdir()
    with ExitStack() as stack:
        daemon = stack.enter_context(RunningDaemon(tmp_path, "--source", "simulated:input-bound"))
        victoria = stack.enter_context(victoria_metrics(tmp_path / "victoria"))
        fleet = Fleet(tmp_path, daemon.address, f"http://{victoria.address}/api/v1/write")
        stack.enter_context(fleet.agent())
        with fleet.receiver() as receiver:
            wait_until("some scrapes came", lambda: len(points(receiver, "up")) > 2, seconds=30)
            before = {str(one["metric"]) for one in receiver.now('{__name__=~"gpumon_.*"}')}
        gone_s = time.time()
        time.sleep(AWAY_S)
        receiver = stack.enter_context(fleet.receiver())
        back_s = time.time()
        federating = stack.enter_context(fleet.federating())

        def arrived(server: Prometheus) -> bool:
            return float(points(server, "up")[-1][0]) > back_s

        wait_until("the rest came", lambda: arrived(receiver), seconds=30)
        times = [float(at) for at, _ in points(receiver, "up")]
        assert len([at for at in times if gone_s < at < gone_s + AWAY_S]) >= AWAY_S - 2
        assert max(later - at for at, later in pairwise(times)) < 3
        after = {str(one["metric"]) for one in receiver.now('{__name__=~"gpumon_.*"}')}
        assert before <= after

        wait_until("VictoriaMetrics has it, too", lambda: arrived(victoria), seconds=30)
        observed = 'gpumon_gpu_observed_seconds_total{uuid=~".*0"}'
        both = [
            {float(at): float(value) for at, value in points(one, observed) if float(at) < back_s}
            for one in (victoria, receiver)
        ]
        assert both[0] == both[1]

        tile = f'{LOST}{{host="a",cause="unknown"}}'
        wait_until("two tiles came", lambda: len(points(federating, tile)) >= 2, seconds=60)
        theirs = points(receiver, tile)
        assert [one for one in points(federating, tile) if one not in theirs] == []
        assert all(0 < float(value) <= 2 * 5.5 for _, value in theirs[1:])
        names = {one["metric"]["__name__"] for one in federating.now(TILES)}
        assert {LOST, "gpumon:gpu_observed_seconds:increase5m", "gpumon:hosts:count5m"} <= names


class TestVictoriaMetrics:
    """Vmalert evaluates the same rules there."""

    SCRIPT = FleetScript(hosts=10, gpus=2, jobs=typical_jobs(10))

    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[Prometheus]:
        with victoria_metrics(tmp_path) as victoria:
            yield victoria

    def test_evaluates_the_tiles_as_prometheus_does(self, server: Prometheus) -> None:
        end_s, text = int(time.time()) // TILE_S * TILE_S, StringIO()
        write_raw(text, self.SCRIPT, Span(end_s - 1200, end_s), step_s=30)
        in_ms = re.sub(r"(\d+)\n", r"\g<1>000\n", text.getvalue())
        url = f"http://{server.address}/api/v1/import/prometheus"
        with urllib.request.urlopen(url, in_ms.encode(), timeout=PATIENCE_S):
            pass
        now = {"time": str(end_s + 60)}  # a tile ends a minute before
        fetched(f"http://{server.address}/internal/force_flush")
        truth, seen = growth_of_tiles(self.SCRIPT), 0
        for name, expression in tiles_of_counters().items():
            for sample in server.now(expression, **now):
                due = truth.get(key_of(name, sample["metric"]), 0.0)
                assert float(sample["value"][1]) == pytest.approx(due, rel=0.01), (name, sample)
                seen += due > 0
        assert seen > 200

    def test_accepts_the_rules(self) -> None:
        command = [needed("vmalert", "victoria-metrics"), "-dryRun", f"-rule={RULES}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

        assert done.returncode == 0, done.stderr
