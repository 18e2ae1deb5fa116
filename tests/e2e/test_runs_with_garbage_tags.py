"""A healthy training run beside runs that tag nonsense, under one real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.daemon import LONG_STEP_S, FollowingDaemon
from tests.e2e.hurried_daemon import ROOT, started_training
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "e2e" / "garbage_tags.py"
KINDS = ("workers", "calls", "records", "bytes")
"""By the number of its GPU; the first is healthy itself."""
DIAGNOSED_FROM_S = 11.0
STEP_S = 0.1
WINDOW_S = 1 / 6
"""The last window of the driver may reach beyond the last span."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowingDaemon]:
    """It follows all of them until the healthy one has a verdict."""
    folder = tmp_path_factory.mktemp("garbage")
    with FollowingDaemon(folder, gpus=len(KINDS)) as daemon, ExitStack() as stack:
        for gpu, kind in enumerate(KINDS):
            stack.enter_context(started_training(daemon, PROGRAM, kind, gpu, kind))
        wait_until(lambda: daemon.report()["gpus"][0]["in_use_seconds"] > DIAGNOSED_FROM_S, 60)
        yield daemon


@pytest.fixture(scope="module")
def report(daemon: FollowingDaemon) -> dict[str, Any]:
    return daemon.report()


def written_s(daemon: FollowingDaemon) -> float:
    """How long the healthy GPU was busy, by what its training run wrote."""
    lines = map(json.loads, daemon.spans.read_text(encoding="ascii").splitlines())
    spans_ns = [line["end_ns"] - line["start_ns"] for line in lines if line["gpu"] == 0]
    return float(sum(spans_ns)) / 1e9 - LONG_STEP_S


class TestAHealthyRun:
    def test_has_its_own_steps_waits_and_busy_time(
        self, daemon: FollowingDaemon, report: dict[str, Any]
    ) -> None:
        (run,) = (run for run in report["runs"] if run["run"] == "workers")
        gpu, wall_s = report["gpus"][0], run["phase_seconds"]["train_step"]

        assert run["steps"] * STEP_S == pytest.approx(wall_s, rel=0.3)
        assert run["phase_seconds"]["input_wait"] < 0.2 * wall_s
        assert gpu["verdict"] not in ("starved", "starvation_suspected", "hanging")
        assert gpu["starved_seconds"] < 0.05 * gpu["in_use_seconds"]
        assert 0.9 * DIAGNOSED_FROM_S < gpu["busy_seconds"] <= written_s(daemon) + WINDOW_S


class TestARunThatTagsNonsense:
    @pytest.mark.parametrize("kind", KINDS[1:])
    def test_makes_no_gpu_busy(self, report: dict[str, Any], kind: str) -> None:
        gpu = report["gpus"][KINDS.index(kind)]

        assert gpu["verdict"] in ("not_in_use", "too_short_to_judge", "hanging")
        assert (gpu["busy_seconds"], gpu["suspected_seconds"]) == (0, 0)

    def test_breaks_neither_the_daemon_nor_its_sums(
        self, daemon: FollowingDaemon, report: dict[str, Any]
    ) -> None:
        assert daemon.get("/-/healthy")[0] == 200
        assert daemon.get("/metrics")[0] == 200
        assert "Traceback" not in daemon.log()
        for gpu in report["gpus"]:
            parts_s = gpu["busy_seconds"] + sum(gpu["idle_by_cause"].values())
            assert parts_s + gpu["pending_seconds"] == pytest.approx(
                gpu["observed_seconds"], abs=1e-6
            )
