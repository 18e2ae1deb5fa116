"""Every panel of a host and of a run, queried on a real Prometheus that scraped real daemons.

The GPU is simulated: GPU 0 works 1.5, 0.9 and 2.1 s, and waits 1.5 s after each; GPU 1 is healthy.
A second daemon watches two equally busy GPUs; one of them has low SM utilisation. A third has a
tagged run on its GPU.
"""

from __future__ import annotations

import getpass
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon import FollowingDaemon, RunningDaemon
from tests.dashboard_file import HOST, RUN, Target, as_grafana_sends_it, dashboard, other_queries
from tests.dashboard_file import targets as targets_of
from tests.e2e.hurried_daemon import started_training
from tests.e2e.prometheus_server import Prometheus, running_prometheus, wait_until
from tests.needs import needed

ROOT = Path(__file__).resolve().parents[2]

FILLED_JOB = "filled"
TAGGED_JOB = "tagged"
EVERY_JOB = {"job": ".+"}
WATCHED_SECONDS = 15
NOT_SIMULATED = {
    ("Power of busy, lost and unused time", "A"),
    ("Clocks", "C"),
    ("What holds the clocks down", "A"),
}
"""What simulated GPUs do not report."""
NOT_OF_A_STEADY_RUN = {
    ("Its GPUs", "share"),
    ("Alerts", "annotation"),
    ("Epochs", "annotation"),
    ("Ratio changes", "annotation"),
}
NO_PAUSE_ENDED = ("Length of the pauses", "C")
SCRAPED_S = 5.0
"""Older samples have certainly been scraped."""

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]


@pytest.fixture(scope="module")
def daemon_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("input-bound", tmp_path_factory.mktemp("runtime")) as address:
        yield address


@pytest.fixture(scope="module")
def filled_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("under-filled", tmp_path_factory.mktemp("runtime")) as address:
        yield address


@pytest.fixture(scope="module")
def tagged_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("runtime")
    program = Path(__file__).with_name("steady_training.py")
    with (
        FollowingDaemon(folder, "--users", gpus=1) as daemon,
        started_training(daemon, program, "resnet", 0, "steady"),
    ):
        yield daemon.address


@contextmanager
def serving(script: str, folder: Path) -> Iterator[str]:
    with RunningDaemon(folder, "--source", f"simulated:{script}") as daemon:
        yield daemon.address


@pytest.fixture(scope="module")
def prometheus(
    daemon_address: str,
    filled_address: str,
    tagged_address: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    scraped = [
        {
            "job_name": name,
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "static_configs": [{"targets": [address]}],
        }
        for name, address in (
            ("gpumon", daemon_address),
            (FILLED_JOB, filled_address),
            (TAGGED_JOB, tagged_address),
        )
    ]
    binary = needed("prometheus")
    with running_prometheus(binary, tmp_path_factory.mktemp("prometheus"), scraped) as server:
        wait_until(
            "every job has been scraped",
            lambda: len(server.now("up == 1")) == 3,
            seconds=20,
        )
        time.sleep(WATCHED_SECONDS)
        yield server


class TestEveryPanel:
    @pytest.mark.parametrize("target", targets_of(HOST), ids=str)
    def test_finds_data(self, prometheus: Prometheus, target: Target) -> None:
        expr = as_grafana_sends_it(target.expr, EVERY_JOB)

        answer = (
            prometheus.now(expr)
            if target.is_instant
            else prometheus.over_time(expr, seconds=20, step=2)
        )

        if (target.panel, target.ref) in NOT_SIMULATED:
            assert not answer
            return
        assert answer or (target.panel, target.ref) == NO_PAUSE_ENDED
        points = [point for one in answer for point in one.get("values", [one.get("value")])]
        assert not points or any(math.isfinite(float(value)) for _, value in points)

    def test_of_time_adds_up_to_one(self, prometheus: Prometheus) -> None:
        bands = [target for target in targets_of(HOST) if target.panel == "Where the GPU time went"]

        at = str(time.time() - SCRAPED_S)  # one time for all, as Grafana does
        total = sum(prometheus.value(as_grafana_sends_it(band.expr), time=at) for band in bands)

        assert len(bands) == 5
        assert total == pytest.approx(1.0, abs=1e-6)

    def test_of_the_culprit_names_one(self, prometheus: Prometheus) -> None:
        (culprit,) = [target for target in targets_of(HOST) if target.panel == "Main cause"]

        (answer,) = prometheus.now(as_grafana_sends_it(culprit.expr))

        assert answer["metric"]["cause"] == "unknown"
        assert float(answer["value"][1]) > 5 / 3600

    def test_of_each_gpu_has_a_row_for_each(self, prometheus: Prometheus) -> None:
        rows = [target for target in targets_of(HOST) if target.panel == "Each GPU"]

        assert rows
        for target in rows:
            expr = as_grafana_sends_it(target.expr)
            answer = prometheus.now(expr)
            assert len({one["metric"]["uuid"] for one in answer}) == 2, target.ref


class TestEveryPanelOfARun:
    @pytest.mark.parametrize("target", [*targets_of(RUN), *other_queries(RUN)], ids=str)
    def test_finds_data(self, prometheus: Prometheus, target: Target) -> None:
        expr = as_grafana_sends_it(target.expr, {"run": "resnet"})

        answer = (
            prometheus.now(expr)
            if target.is_instant
            else prometheus.over_time(expr, seconds=20, step=2)
        )

        assert bool(answer) is ((target.panel, target.ref) not in NOT_OF_A_STEADY_RUN)

    def test_names_its_user_on_the_host(self, prometheus: Prometheus) -> None:
        user = getpass.getuser()
        for title in ("Users on each GPU now", "Runs on each GPU now"):
            (target,) = [one for one in targets_of(HOST) if one.panel == title]

            (row,) = prometheus.now(as_grafana_sends_it(target.expr, {"job": TAGGED_JOB}))

            expected = {"user": user} if title.startswith("Users") else {"run": "resnet"}
            assert expected.items() <= row["metric"].items()


class TestThePanelsOnFilling:
    def by_gpu(self, prometheus: Prometheus, title: str, ref: str = "A") -> dict[str, float]:
        """The value by GPU, from the daemon whose GPUs report SM utilisation."""
        target = next(one for one in targets_of(HOST) if (one.panel, one.ref) == (title, ref))
        answer = prometheus.now(as_grafana_sends_it(target.expr, {"job": FILLED_JOB}))
        return {one["metric"]["gpu"]: float(one["value"][1]) for one in answer}

    def test_show_the_full_gpu_from_the_one_that_is_a_quarter_full(
        self, prometheus: Prometheus
    ) -> None:
        active = self.by_gpu(prometheus, "How full the GPUs are")
        power = self.by_gpu(prometheus, "Power against its limit")

        assert active == {"0": pytest.approx(0.24, abs=0.02), "1": pytest.approx(0.91, abs=0.02)}
        assert power["0"] < 0.45 < 0.7 < power["1"]


class TestTheChoices:
    def test_of_the_gpu_show_index_model_and_machine(self, prometheus: Prometheus) -> None:
        (variable,) = [one for one in dashboard(HOST)["templating"]["list"] if one["name"] == "gpu"]
        query = variable["query"]
        inner = re.fullmatch(r"query_result\((.*)\)", query, re.DOTALL)
        assert inner is not None
        regex = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))

        # As Grafana writes a result before it applies the regular expression.
        written = [
            "{" + ",".join(f'{key}="{value}"' for key, value in one["metric"].items()) + "}"
            for one in prometheus.now(as_grafana_sends_it(inner[1]))
            if one["metric"]["job"] == "gpumon"
        ]
        found = [match for match in map(regex.search, written) if match]

        assert [match["text"].split()[0] for match in found] == ["0", "1"]
        assert all(match["value"].startswith("GPU-") for match in found)
