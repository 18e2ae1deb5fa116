"""Three daemons, two of them healthy, and the real alerts, with minutes that last four seconds.

On the third, both ranks of a job wait half of the time for input. While that page fires, its daemon
is killed and comes back.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import FollowingDaemon, RunningDaemon
from tests.e2e.hurried_daemon import ROOT, started_training
from tests.e2e.prometheus_server import Prometheus, running_prometheus, wait_until
from tests.e2e.test_alerts_on_prometheus import hurried
from tests.needs import needed
from tests.serving import free_port

TRAINING = """
import sys, time
from pathlib import Path
from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans
with BusySpans(Path(sys.argv[1]), int(sys.argv[2])) as device:
    while True:
        with phase("input_wait"):
            time.sleep(0.3)
        with phase("train_step"):
            device.sleep(0.3)
        step()
"""
RANKS = 2
WATCHED_S = 60.0

pytestmark = [pytest.mark.soak, pytest.mark.prometheus]


class AgainDaemon(FollowingDaemon):
    """It can be killed and started again, at the same address."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "--listen", f"127.0.0.1:{free_port()}", gpus=RANKS)

    def dies_for(self, seconds: float) -> None:
        self.process.kill()
        self.process.wait(10)
        time.sleep(seconds)
        self.__enter__()


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[tuple[Prometheus, AgainDaemon]]:
    folders = [tmp_path / name for name in ("late", "a", "b", "server")]
    for folder in folders:
        folder.mkdir()
    program = tmp_path / "train.py"
    program.write_text(TRAINING, encoding="utf-8")
    rules = []
    for name in ("rules.yml", "alerts.yml"):
        rules.append(tmp_path / name)
        text = (ROOT / "prometheus" / name).read_text(encoding="utf-8")
        rules[-1].write_text(hurried(text), encoding="utf-8")
    with ExitStack() as stack:
        late = stack.enter_context(AgainDaemon(folders[0]))
        targets = {"late": late.address}
        for name, folder in zip("ab", folders[1:3], strict=True):
            daemon = RunningDaemon(folder, "--source", "simulated:healthy")
            targets[name] = stack.enter_context(daemon).address
        for rank in range(RANKS):
            job = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "head"}
            job |= {"LOCAL_RANK": str(rank), "MASTER_PORT": "29500"}
            stack.enter_context(started_training(late, program, "llama", rank, **job))
        configs = [
            {"targets": [address], "labels": {"instance": f"{name}:19835"}}
            for name, address in targets.items()
        ]
        often = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        jobs: list[dict[str, Any]] = [{"job_name": "gpumon", **often, "static_configs": configs}]
        server = running_prometheus(
            needed("prometheus"), folders[3], jobs, rules=tuple(rules), evaluation_interval="1s"
        )
        yield stack.enter_context(server), late


def test_is_one_page_and_true_while_its_daemon_is_killed_and_comes_back(
    prometheus: tuple[Prometheus, AgainDaemon],
) -> None:
    server, late = prometheus

    def pages() -> list[dict[str, Any]]:
        alerts = server.ask("alerts")["alerts"]
        return [
            one
            for one in alerts
            if one["state"] == "firing" and one["labels"]["severity"] == "page"
        ]

    wait_until("a page fires", pages, seconds=180)
    for die_for_s in (0.0, 1.5):
        if die_for_s:
            late.dies_for(die_for_s)
        end_s = time.monotonic() + WATCHED_S / 2
        while time.monotonic() < end_s:
            (page,) = pages()
            assert page["labels"] == {
                "alertname": "GpumonGPUStarved",
                "severity": "page",
                "job": "gpumon",
                "instance": "late:19835",
                "run": "llama",
                "job_id": "head:29500",
            }
            time.sleep(1.0)
    summary = page["annotations"]["summary"]
    found = re.fullmatch(
        r"Run llama on late:19835 waits for input ([\d.]+)% of the time of GPU 0, 1\.", summary
    )
    assert found, summary
    assert 40 <= float(found[1]) <= 60
    print(json.dumps(page["annotations"], indent=1), file=sys.stderr)
