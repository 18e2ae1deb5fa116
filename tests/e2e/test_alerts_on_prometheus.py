"""The alerts on a real Prometheus that scrapes real daemons.

One watches a healthy daemon at its own intervals; ``make soak`` has the same for eight minutes. In
another, minutes last four seconds: it watches training runs that stand still, and a driver that is
reloaded.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.e2e.prometheus_server import Prometheus, running_prometheus, wait_until
from tests.e2e.standstills import Standstills, hurried, standing_still
from tests.fakenvml import codes
from tests.faults.faulty_machine import Machine
from tests.needs import needed
from tests.patience import wait_until as wait_for

FOLDER = Path(__file__).resolve().parents[2] / "prometheus"
RULES = ("rules.yml", "alerts.yml")
SCRAPED = "35s"
"""The first scrape comes within it. An age by the clock of whoever evaluates passes 30 s until the
next one, wherever in the minute that is."""
WATCHED_SECONDS = 75
LEAVES = "monitoring/gpumon"
ACCUSED = ("hanging", "starved", "starvation_suspected")
LONG_PATIENCE_S = 90.0
"""A verdict needs ten seconds in use, which a busy machine makes longer."""

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def standstills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standstills]:
    """They go on while the first test sleeps."""
    with standing_still(tmp_path_factory.mktemp("standstills")) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def reloaded(
    tmp_path_factory: pytest.TempPathFactory, fake_library: Path
) -> Iterator[RunningDaemon]:
    """A daemon of busy GPUs whose driver is gone for five seconds, and comes back reloaded."""
    folder = tmp_path_factory.mktemp("reloaded")
    machine = Machine(folder, fake_library.parent, busy_ratio=0.97)  # pauses raise no alert here

    def reload() -> None:
        machine.fake.fail_everything(codes.UNINITIALIZED)
        time.sleep(5)
        machine.fake.reload_driver()
        machine.fake.fail_everything(codes.SUCCESS)

    with machine.serve_well() as daemon:
        later = threading.Timer(20, reload)
        later.start()
        yield daemon
        later.join()
    machine.fake.close()


@pytest.fixture(scope="module", autouse=True)
def in_a_hurry(
    standstills: Standstills, reloaded: RunningDaemon, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("hurried")
    for name in RULES:
        text = (FOLDER / name).read_text(encoding="utf-8")
        (folder / name).write_text(hurried(text), encoding="utf-8")
    machines = [
        {"targets": [daemon.address], "labels": {"instance": name}}
        for name, daemon in (("standstills", standstills.daemon), ("reloaded", reloaded))
    ]
    job = {
        "job_name": "gpumon",
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": machines,
    }
    with running_prometheus(
        needed("prometheus"),
        folder,
        [job],
        rules=tuple(folder / name for name in RULES),
        evaluation_interval="1s",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def discovery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("discovery") / "targets.json"


def hurried_rules(folder: Path) -> tuple[Path, ...]:
    """The rules, with a roll call each two seconds and not each minute."""
    copies = []
    for name in RULES:
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


class TestRunsThatStandStill:
    def test_raise_one_alert_and_that_is_for_the_one_that_hangs(
        self, prometheus: Prometheus, in_a_hurry: Prometheus
    ) -> None:
        wait_until("it fires", lambda: in_a_hurry.alerts("GpumonTrainingHangs"), seconds=60)
        # Those on the daemon itself have limits in real seconds, which cannot be hurried.
        found = in_a_hurry.alerts("Gpumon(GPUStarved|GPUStarvationSuspected|TrainingHangs)")
        firing = [one for one in found if one["alertstate"] == "firing"]

        assert [(one["alertname"], one.get("run")) for one in firing] == [
            ("GpumonTrainingHangs", "hangs")
        ]
        assert in_a_hurry.troubles_of_rules() == {}


class TestADriverThatIsReloaded:
    """In a hurry: 75 s are 19 minutes."""

    def test_fires_no_alert_of_any_kind(
        self, prometheus: Prometheus, in_a_hurry: Prometheus, reloaded: RunningDaemon
    ) -> None:
        here = '{instance="reloaded",collector="nvml"}'
        was_away = f"min_over_time(gpumon_collector_success{here}[1h])"

        found = [one for one in in_a_hurry.alerts() if one["instance"] == "reloaded"]

        assert in_a_hurry.value(was_away) == 0.0
        assert reloaded.get("/-/ready") == (200, "ready\n")
        assert [one["alertname"] for one in found if one["alertstate"] == "firing"] == []

    def test_starts_no_process_again(self, prometheus: Prometheus, in_a_hurry: Prometheus) -> None:
        started = 'process_start_time_seconds{instance="reloaded"}'

        assert in_a_hurry.value(f"changes({started}[1h])") == 0.0
        assert in_a_hurry.value(f"count_over_time({started}[1h])") > 30


class TestRunsBesideThem:
    def test_are_accused_of_nothing_where_they_work(
        self, standstills: Standstills, in_a_hurry: Prometheus
    ) -> None:
        """A busy machine stretches their steps: some idle time, but none due to input."""
        wait_for(
            lambda: standstills.gpu("steady")["verdict"] != "too_short_to_judge", LONG_PATIENCE_S
        )
        gpu = standstills.gpu("steady")

        assert gpu["verdict"] not in ACCUSED
        assert gpu["starved_ratio"] < 0.05
        hanging = in_a_hurry.alerts("GpumonTrainingHangs")
        assert [one for one in hanging if one["run"] == "steady"] == []

    def test_are_advised_to_keep_workers_where_batches_are_late_as_an_epoch_begins(
        self, standstills: Standstills
    ) -> None:
        wait_for(lambda: standstills.gpu("epochs")["verdict"] == "starved", LONG_PATIENCE_S)

        assert "Keep the loader and its workers alive" in standstills.text("epochs")

    def test_wait_for_no_input_while_they_evaluate_without_a_tag(
        self, standstills: Standstills
    ) -> None:
        wait_for(
            lambda: standstills.gpu("evaluates")["verdict"] != "too_short_to_judge", LONG_PATIENCE_S
        )
        gpu = standstills.gpu("evaluates")

        assert gpu["verdict"] not in ("healthy", *ACCUSED)
        assert (gpu["suspected_seconds"], gpu["starved_ratio"] < 0.05) == (0, True)
        assert "Tag what the run does in this time" in standstills.text("evaluates")

    def test_are_followed_whatever_another_writes_into_its_own_ring(
        self, standstills: Standstills
    ) -> None:
        def steps() -> int:
            runs = standstills.daemon.report()["runs"]
            return sum(one["steps"] for one in runs if one["run"] == "steady")

        wait_for(lambda: steps() > 300, LONG_PATIENCE_S)
        assert standstills.daemon.get("/-/healthy")[0] == 200
