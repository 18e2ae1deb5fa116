"""How long does Prometheus take for all queries of each dashboard, with 200 hosts of eight GPUs?

    python -m benchmarks.bench_fleet_dashboards [--hosts 200]

A real Prometheus holds six hours of tiles of five minutes, a week of hourly ones, and an hour of
scrapes each minute. Each query of a dashboard, of its variables and of its annotations is asked
three times in turn, and its median counts; Grafana asks several at the same time. The peer is the
loss by cause from the counters of all GPUs, as a dashboard without recording rules asks for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.fleet_block import (
    HOUR_S,
    TILE_S,
    FleetScript,
    Span,
    make_blocks,
    uuid_of,
    write_raw,
    write_rules,
)
from tests.dashboard_file import (
    FLEET,
    HOST,
    RUN,
    Target,
    as_grafana_sends_it,
    other_queries,
    targets,
)
from tests.e2e.prometheus_server import Prometheus, running_prometheus
from tests.needs import needed

FLEET_GOAL_S: Final = 3.0
TIMES: Final = 3
MOST_POINTS: Final = 700
"""Grafana asks for about one point for each pixel of a panel."""
PEER: Final = "sum by (cause) (increase(gpumon_gpu_idle_seconds_total[1h]))"


def main() -> int:
    """Print a table; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=200)
    script = FleetScript(hosts=parser.parse_args().hosts)
    with tempfile.TemporaryDirectory() as name:
        return measure(script, Path(name))


def measure(script: FleetScript, folder: Path) -> int:
    """Fill a Prometheus, and ask it."""
    end_s = int(time.time()) // HOUR_S * HOUR_S
    fill(script, folder, end_s)
    with running_prometheus(needed("prometheus"), folder, []) as server:
        print(f"{script.hosts} hosts, {script.hosts * script.gpus:,} GPUs")
        seconds = report(server, "fleet, 6 h", FLEET, end_s, 6 * HOUR_S)
        report(server, "fleet, 7 days", FLEET, end_s, 7 * 24 * HOUR_S)
        report(server, "host, 1 h", HOST, end_s, HOUR_S)
        report(server, "run, 1 h", RUN, end_s, HOUR_S)
        peer_s = median_s(lambda: server.now(PEER, time=str(end_s)))
        print(f"{'peer: one query of counters, 1 h':34} {peer_s:6.2f} s")
    print(
        f"goal of the fleet, 6 h: {FLEET_GOAL_S} s{'' if seconds <= FLEET_GOAL_S else ', MISSED'}"
    )
    return 0 if seconds <= FLEET_GOAL_S else 1


def fill(script: FleetScript, folder: Path, end_s: int) -> None:
    """Write the blocks; tiles end some seconds after full minutes, as Prometheus evaluates them."""
    written = folder / "samples.txt"
    for days, tile_s in ((0.25, TILE_S), (7.0, HOUR_S)):
        with written.open("w", encoding="utf-8") as text:
            span = Span.of_days(days, until_s=end_s, tile_s=tile_s)
            write_rules(text, script, Span(span.first_s - 7, span.last_s - 7), tile_s=tile_s)
        make_blocks(written, folder / "tsdb")
    with written.open("w", encoding="utf-8") as text:
        write_raw(text, script, Span(end_s - HOUR_S, end_s), step_s=60)
    make_blocks(written, folder / "tsdb")


def report(server: Prometheus, name: str, board: str, end_s: int, shown_s: int) -> float:
    """Ask all queries of a dashboard and print a row; their sum in seconds."""
    queries = [one for one in targets(board) + other_queries(board) if one.panel != "$tile"]
    seconds = {query: seconds_of(server, query, end_s, shown_s) for query in queries}
    slowest = max(queries, key=seconds.__getitem__)
    whole_s = sum(seconds.values())
    print(
        f"{name:34} {whole_s:6.2f} s in {len(queries)} queries; the slowest, "
        f"{seconds[slowest]:.2f} s: {slowest.panel} {slowest.ref}"
    )
    return whole_s


def seconds_of(server: Prometheus, query: Target, end_s: int, shown_s: int) -> float:
    """Median seconds of a query, with the variables of the time shown."""
    tile_s = TILE_S if shown_s <= 86_400 else HOUR_S
    smallest = tile_s if query.board == FLEET else 15
    step_s = max(smallest, shown_s // MOST_POINTS // smallest * smallest)
    sent = {
        "__rate_interval": f"{max(240, step_s)}s",
        "__range": f"{shown_s}s",
        "__range_s": str(shown_s),
        "__interval": f"{step_s}s",
        "__interval_ms": str(step_s * 1000),
        "tile": "5m" if tile_s == TILE_S else "1h",
        "host": "node-003",
        "run": "starved-0",
        "run_gpu": "|".join(uuid_of(host, gpu) for host in range(4) for gpu in range(8)),
    }
    expr = as_grafana_sends_it(query.expr, sent)
    if query.is_instant:
        return median_s(lambda: server.now(expr, time=str(end_s)))
    if query.ref == "annotation":
        step_s = max(60, step_s)
    return median_s(lambda: server.over_time(expr, seconds=shown_s, step=step_s, end=end_s))


def median_s(ask: Callable[[], object]) -> float:
    """Median seconds of a call."""
    seconds = []
    for _ in range(TIMES):
        began_s = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - began_s)
    return statistics.median(seconds)


if __name__ == "__main__":
    sys.exit(main())
