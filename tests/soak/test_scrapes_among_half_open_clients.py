"""A thousand scrapes among two hundred clients that never finish their request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.daemon import RunningDaemon
from tests.half_open_clients import half_open_clients, quantile, scrape_times

pytestmark = pytest.mark.soak

P99_GOAL_S = 0.05


def test_are_all_answered_and_soon(tmp_path: Path) -> None:
    with RunningDaemon(tmp_path, "--source", "simulated:eight") as daemon:
        daemon.wait_for(lambda state: state["gpus"])
        with half_open_clients(daemon.address, 200):
            times_s = scrape_times(daemon.address, 1_000)

    print(f"p50 {1e3 * quantile(times_s, 0.5):.1f} ms, p99 {1e3 * quantile(times_s, 0.99):.1f} ms")
    assert len(times_s) == 1_000
    assert quantile(times_s, 0.99) <= P99_GOAL_S
