"""The example of routes for Alertmanager: ``amtool`` accepts it, and a real one obeys it."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.hurried_daemon import ROOT
from tests.e2e.prometheus_server import fetched, wait_until
from tests.needs import needed
from tests.processes import ending
from tests.serving import free_port
from tests.waiting import PATIENCE_S

CONFIG = ROOT / "prometheus" / "alertmanager.yml"
PACKAGE = "prometheus-alertmanager"

pytestmark = [pytest.mark.prometheus]


def amtool(*words: str) -> str:
    command = [needed("amtool", PACKAGE), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Alertmanager:
    """A client of a real one."""

    def __init__(self, address: str) -> None:
        self._api = f"http://{address}/api/v2"

    def is_ready(self) -> bool:
        return bool(json.loads(fetched(f"{self._api}/status")))

    def fire(self, *alerts: dict[str, str]) -> None:
        """Send alerts of one machine, of a job of Prometheus called gpumon."""
        target = {"job": "gpumon", "instance": "a:19835"}
        body = json.dumps([{"labels": {**target, **labels}} for labels in alerts])
        request = urllib.request.Request(
            f"{self._api}/alerts", body.encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            pass

    def muted(self) -> set[tuple[str, str]]:
        """Name and instance of alerts that others inhibit."""
        alerts: list[dict[str, Any]] = json.loads(fetched(f"{self._api}/alerts"))
        return {
            (one["labels"]["alertname"], one["labels"]["instance"])
            for one in alerts
            if one["status"]["inhibitedBy"]
        }

    def notifications(self) -> list[tuple[str, int]]:
        """Receiver and number of alerts of each group."""
        groups = json.loads(fetched(f"{self._api}/alerts/groups"))
        return sorted((one["receiver"]["name"], len(one["alerts"])) for one in groups)


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[Alertmanager]:
    """It sends nothing: its groups wait for longer than the test."""
    config = tmp_path / "alertmanager.yml"
    text = CONFIG.read_text(encoding="utf-8").replace("group_wait: 30s", "group_wait: 1h")
    config.write_text(text, encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [
        needed("prometheus-alertmanager", PACKAGE),
        f"--config.file={config}",
        f"--storage.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        with ending(process):
            server = Alertmanager(address)
            wait_until("Alertmanager is ready", server.is_ready, seconds=30)
            yield server


def named(alert: str, **labels: str) -> dict[str, str]:
    text = (ROOT / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    (severity,) = re.findall(rf"- alert: {alert}\n(?:.*\n)+?.*severity: (\w+)", text)[:1]
    return {"alertname": alert, "severity": severity, **labels}


class TestTheExample:
    def test_is_accepted_by_amtool(self) -> None:
        assert "SUCCESS" in amtool("check-config", str(CONFIG))

    @pytest.mark.parametrize(
        ("alert", "receiver"),
        [(named("GpumonGPUStarved", job_id="7.0"), "on-call"), (named("GpumonDown"), "on-call"),
         (named("GpumonJobImbalanced"), "information")],
        ids=["a page on a job", "another page", "information"],
    )  # fmt: skip
    def test_has_a_receiver_for(self, alert: dict[str, str], receiver: str) -> None:
        words = [f"{name}={value}" for name, value in alert.items()]

        assert receiver in amtool("config", "routes", "test", f"--config.file={CONFIG}", *words)

    def test_names_only_alerts_that_exist(self) -> None:
        alerts = (ROOT / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
        named_here = re.findall(r"Gpumon\w+", CONFIG.read_text(encoding="utf-8"))

        assert set(named_here) <= set(re.findall(r"- alert: (\w+)", alerts))


class TestAlertmanager:
    def test_notifies_once_of_a_job_on_several_machines(self, alertmanager: Alertmanager) -> None:
        job = {"run": "llama", "job_id": "7.0"}
        alertmanager.fire(
            *(named("GpumonGPUStarved", instance=f"{name}:1", **job) for name in "abcd"),
            *(named("GpumonGPUXidErrors", uuid=f"GPU-{number}", xid="48") for number in range(8)),
            *(named("GpumonGPUThrottled", uuid=f"GPU-{number}") for number in range(8)),
        )

        wait_until("all are grouped", lambda: len(alertmanager.notifications()) == 3, seconds=20)
        assert alertmanager.notifications() == [("information", 8), ("on-call", 4), ("on-call", 8)]

    def test_mutes_a_machine_whose_gpu_fell_off_the_bus_or_whose_run_hangs(
        self, alertmanager: Alertmanager
    ) -> None:
        job = {"run": "llama", "job_id": "7.0"}
        alertmanager.fire(
            named("GpumonGPUXidErrors", uuid="GPU-7", xid="79"),
            named("GpumonGPUMissing", uuid="GPU-7"),
            named("GpumonGPUStarved", **job),
            named("GpumonTrainingHangs", instance="b:1", run="llama"),
            named("GpumonGPUStarved", instance="b:1", **job),
            named("GpumonDown", instance="b:1"),
            named("GpumonGPUStarved", instance="c:1", **job),
        )
        lower = {("GpumonGPUMissing", "a:19835"), ("GpumonGPUStarved", "a:19835")}
        lower |= {("GpumonGPUStarved", "b:1")}

        wait_until("lower alerts are muted", lambda: alertmanager.muted() == lower, seconds=20)

    def test_mutes_only_the_gpu_that_is_missing(self, alertmanager: Alertmanager) -> None:
        alertmanager.fire(
            named("GpumonGPUMissing", uuid="GPU-7"),
            named("GpumonGPUStarved", uuid="GPU-7"),
            named("GpumonGPUMissing", instance="b:1", uuid="GPU-7"),
            named("GpumonGPUStarved", instance="b:1", uuid="GPU-0"),
            named("GpumonGPUMissing", instance="c:1"),
            named("GpumonGPUStarved", instance="c:1", run="llama", job_id="7.0"),
        )
        muted = {("GpumonGPUStarved", "a:19835")}

        wait_until("that is muted", lambda: alertmanager.muted() == muted, seconds=20)
