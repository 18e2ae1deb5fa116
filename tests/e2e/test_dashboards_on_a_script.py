"""Every query of the dashboards on a real Prometheus, after a half hour whose truth is known.

``tests/builders/scripted_hosts.py`` describes the half hour. Of a second one no GPU is in use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import pytest

from tests.builders.scripted_hosts import UNUSED, Hours
from tests.dashboard_file import FLEET, HOST, RUN, Target, as_grafana_sends_it, everything
from tests.e2e.prometheus_server import Prometheus, Sample
from tests.e2e.scripted_prometheus import (
    NOW_S,
    SENT,
    SHOWN_S,
    UNUSED_SENT,
    prometheus_after,
)

pytestmark = pytest.mark.prometheus

HALF_HOUR: Final = Hours()
NOTHING_USED: Final = Hours(UNUSED)
Labels = tuple[str, ...]
TRUTH: Final[dict[tuple[str, str, str], dict[Labels, float]]] = {
    # 2256 GPU-seconds lost (resnet 1560, gpt 480, bert 216), 6144 busy.
    (FLEET, "Hosts down", "A"): {(): 1},
    (FLEET, "GPUs missing or in trouble", "A"): {(): 1},
    (FLEET, "Hosts and GPUs", "A"): {(): 3},
    (FLEET, "Hosts and GPUs", "B"): {(): 6},
    (FLEET, "Lost, and its price", "A"): {(): 2256 / 3600},
    (FLEET, "Lost, and its price", "B"): {(): 2256 / 8400},
    (FLEET, "Lost, and its price", "C"): {(): 2256 / 3600 * 2.5},
    (FLEET, "Energy of the lost time", "A"): {(): 2256 * 200 / 3.6e6},
    (FLEET, "Energy of the lost time", "B"): {(): 2256 * 200 / 3.6e6 * 0.3},
    (FLEET, "Energy of the lost time", "C"): {(): 2256 * 200 / 3.6e6 * 400},
    # The daemon of two of eight GPUs was down for ten of thirty minutes.
    (FLEET, "Coverage", "A"): {(): 11 / 12},
    (FLEET, "Coverage over time", "A"): {(): 6 / 8},
    (FLEET, "Coverage over time", "B"): {(): 1},
    (FLEET, "Where the GPU time went", "A"): {(): 3.78 / 6},
    (FLEET, "Where the GPU time went", "B"): {(): 2.22 / 6},
    (FLEET, "Where the GPU time went", "C"): {(): 0},
    (FLEET, "What the lost time went to", "A"): {
        ("input_wait",): 1.4,
        ("within_step",): 0.14,
        ("start_up",): 0.6,
        ("validation",): 0.08,
    },
    (FLEET, "Why batches are late", "A"): {
        ("disk_bound",): 0.6,
        ("cpu_bound",): 0.6,
        ("unknown",): 0.2,
    },
    (FLEET, "Worst ten hosts", "lost"): {
        ("node-000",): 1560 / 3600,
        ("node-001",): 216 / 3600,
        ("node-002",): 480 / 3600,
    },
    (FLEET, "Worst ten hosts", "share"): {
        ("node-000",): 1560 / 3600,
        ("node-001",): 0.06,
        ("node-002",): 0.4,
    },
    (FLEET, "Worst ten runs", "lost"): {
        ("resnet",): 1560 / 3600,
        ("bert",): 216 / 3600,
        ("gpt",): 480 / 3600,
    },
    (FLEET, "Worst ten runs", "cause"): {
        ("input_wait", "resnet"): 1320,
        ("validation", "bert"): 144,
        ("start_up", "gpt"): 360,
    },
    (FLEET, "Worst ten users", "lost"): {("ada",): 2040 / 3600, ("bob",): 216 / 3600},
    (FLEET, "Worst ten users", "share"): {("ada",): 2040 / 4800, ("bob",): 0.06},
    (FLEET, "Worst ten users", "price"): {("ada",): 2040 / 3600 * 2.5, ("bob",): 0.06 * 2.5},
    # Two GPUs that lost 15, 50 and 65 %.
    (HOST, "Lost on this host", "A"): {(): 1560 / 3600},
    (HOST, "Lost on this host", "B"): {(): 1560 / 3600},
    (HOST, "Lost on this host", "C"): {(): 1320 / 3600},
    (HOST, "Lost on this host", "D"): {(): 0},
    (HOST, "Main cause", "A"): {("input_wait",): 1320 / 3600},
    (HOST, "Where the GPU time went", "A"): {(): 0.35},
    (HOST, "Where the GPU time went", "B"): {(): 0.6},
    (HOST, "Where the GPU time went", "D"): {(): 0.05},
    (HOST, "What the lost time went to", "A"): {
        ("input_wait",): 1.2,
        ("within_step",): 0.1,
        ("checkpoint",): 0,
    },
    (HOST, "Why batches are late", "A"): {("disk_bound",): 0.6, ("cpu_bound",): 0.6},
    (HOST, "Power of busy, lost and unused time", "A"): {
        ("busy",): 420,
        ("lost",): 260,
        ("not_in_use",): 0,
    },
    (HOST, "Clocks held down, by reason", "A"): {("sw_thermal_slowdown",): 1},
    (HOST, "Ticks without samples", "A"): {(): 0},
    (HOST, "Use of each GPU, by cause", "A"): {
        (card, cause): seconds
        for card in ("0 NVIDIA H200", "1 NVIDIA H200")
        for cause, seconds in (
            ("busy", 1020),
            ("input_wait", 660),
            ("checkpoint", 60),
            ("within_step", 60),
        )
    },
    (RUN, "Lost by this run", "A"): {(): 1560 / 3600},
    (RUN, "Lost by this run", "B"): {(): 1560 / 3600},
    (RUN, "Lost by this run", "C"): {(): 1320 / 3600},
    (RUN, "Lost by this run", "D"): {(): 1560 / 3600 * 2.5},
    (RUN, "Main cause", "A"): {("input_wait",): 1320 / 3600},
    (RUN, "Speed-up, at most", "A"): {(): 3600 / 2280},
    (RUN, "Now", "A"): {(): 0},
    (RUN, "Now", "B"): {(): 2},
    (RUN, "Where its GPU time went", "A"): {(): 0.7},
    (RUN, "Where its GPU time went", "B"): {("input_wait",): 1.2, ("within_step",): 0.1},
    (RUN, "Why its batches are late", "A"): {("disk_bound",): 0.6, ("cpu_bound",): 0.6},
    (RUN, "Phases of the process", "A"): {
        ("input_wait",): 0.6,
        ("train_step",): 0.4,
        ("checkpoint",): 0,
    },
    (RUN, "Steps", "A"): {("resnet",): 1.4},
    (RUN, "Steps", "B"): {(): 3.5},
    (RUN, "Samples", "A"): {("resnet",): 179.2},
}
"""By dashboard, panel and query: values at the end, by the values of their labels."""

NOT_WHEN_UNUSED: Final = {
    **{
        (FLEET, f"Worst ten {what}", ref): "its row says 'nothing lost'"
        for what in ("hosts", "runs", "users")
        for ref in ("share", "price", "cause")
    },
    (HOST, "Length of the pauses", "A"): "no pause ended, says C",
    (HOST, "Length of the pauses", "B"): "no pause ended, says C",
    (HOST, "Each GPU", "gap"): "the table says 'none'",
    (RUN, "Steps", "B"): "a run without GPU time has no bound",
    (RUN, "Its GPUs", "share"): "few runs report shares",
    (FLEET, "Alerts", "annotation"): "no alert fires",
    (HOST, "Alerts", "annotation"): "no alert fires on this host",
    (RUN, "Alerts", "annotation"): "no alert names this run",
    (RUN, "Epochs", "annotation"): "no epoch ended",
    (RUN, "Ratio changes", "annotation"): "the shares stay",
}
"""Queries without a value while nothing is in use, and why."""
QUERIES: Final = everything()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_after(HALF_HOUR, tmp_path_factory.mktemp("used")) as server:
        yield server


@pytest.fixture(scope="module")
def unused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus_after(NOTHING_USED, tmp_path_factory.mktemp("unused")) as server:
        yield server


def answer(
    server: Prometheus, target: Target, sent: dict[str, str], end_s: float = NOW_S
) -> list[Sample]:
    """What Grafana would receive, at ``end_s`` or over the half hour before."""
    expr = as_grafana_sends_it(target.expr, sent)
    if target.is_instant:
        return server.now(expr, time=str(end_s))
    step_s = 60 if target.ref == "annotation" else 300
    return server.over_time(expr, seconds=SHOWN_S, step=step_s, end=end_s)


def points(samples: list[Sample]) -> list[float]:
    """All values of all series."""
    values = [one.get("values", [one.get("value")]) for one in samples]
    return [float(value) for series in values for _, value in series]


def at_the_end(samples: list[Sample]) -> dict[Labels, float]:
    """The last value of each series that has one, by the values of its labels, by their names."""
    found = {}
    for one in samples:
        at, value = one["values"][-1] if "values" in one else one["value"]
        if at == NOW_S:
            labels = sorted(one["metric"].items())
            found[tuple(text for name, text in labels if name != "__name__")] = float(value)
    return found


class TestEveryQuery:
    @pytest.mark.parametrize("target", QUERIES, ids=str)
    def test_has_a_finite_value(self, prometheus: Prometheus, target: Target) -> None:
        values = points(answer(prometheus, target, SENT))

        if target.panel == "Length of the pauses" and target.ref == "C":
            assert not values  # pauses ended
            return
        assert values
        assert all(map(math.isfinite, values))

    @pytest.mark.parametrize(
        "target",
        [one for one in QUERIES if (one.board, one.panel, one.ref) in TRUTH],
        ids=str,
    )
    def test_shows_the_truth(self, prometheus: Prometheus, target: Target) -> None:
        values = at_the_end(answer(prometheus, target, SENT))

        truth = TRUTH[target.board, target.panel, target.ref]
        assert values == pytest.approx(truth, rel=0.01, abs=1e-6)

    @pytest.mark.parametrize("target", QUERIES, ids=str)
    def test_says_so_if_nothing_is_in_use(self, unused: Prometheus, target: Target) -> None:
        values = points(answer(unused, target, UNUSED_SENT))

        is_silent = (target.board, target.panel, target.ref) in NOT_WHEN_UNUSED
        assert any(map(math.isfinite, values)) is not is_silent

    @pytest.mark.parametrize("target", QUERIES, ids=str)
    def test_has_no_value_without_data(self, prometheus: Prometheus, target: Target) -> None:
        before_s = HALF_HOUR.span.first_s - 7200
        if target.panel == "$tile":
            return  # depends on the time shown only

        assert answer(prometheus, target, SENT, end_s=before_s) == []


class TestTheTruth:
    def test_is_asked_of_existing_queries(self) -> None:
        known = {(one.board, one.panel, one.ref) for one in QUERIES}

        assert TRUTH.keys() | NOT_WHEN_UNUSED.keys() <= known
