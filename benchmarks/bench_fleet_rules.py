"""What do the recording rules of a fleet cost Prometheus, and a week of them a query?

    python -m benchmarks.bench_fleet_rules [--hosts 200]

A real Prometheus has 40 minutes of scrapes of 200 hosts with eight GPUs, every 15 s, and a week of
hourly tiles. The peer is the rule that one would write without this: ``increase()`` by instance and
cause. The tiles are compared with the known growth of the counters.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.fleet_block import (
    HOUR_S,
    RULES,
    FleetScript,
    Span,
    growth_of_tiles,
    key_of,
    make_blocks,
    tiles_of_counters,
    write_raw,
    write_rules,
)
from tests.e2e.prometheus_server import Prometheus, running_prometheus, wait_until
from tests.needs import needed

GROUP: Final = "gpumon-fleet-5m"
SCRAPE_EVERY_S: Final = 15
GROUP_GOAL_S: Final = 2.0
WEEK_GOAL_S: Final = 0.5
WEEK: Final = {
    "by cause": "sum by (cause) (sum_over_time(cause:gpumon_gpu_lost_seconds:increase1h[7d]))",
    "by host and cause": "sum_over_time(host_cause:gpumon_gpu_lost_seconds:increase1h[7d])",
    "worst ten runs": (
        "topk(10, sum by (run)"
        " (sum_over_time(run_cause:gpumon_training_gpu_lost_seconds:increase1h[7d])))"
    ),
}
PEER: Final = "sum by (instance, cause) (increase(gpumon_gpu_idle_seconds_total[5m]))"
TIMES: Final = 5


def main() -> int:
    """Print a table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=200)
    script = FleetScript(hosts=parser.parse_args().hosts)
    with tempfile.TemporaryDirectory() as folder:
        return measure(script, Path(folder))


def measure(script: FleetScript, folder: Path) -> int:
    """Fill a Prometheus, and ask it."""
    (folder / "tsdb").mkdir()
    end_s = int(time.time()) // SCRAPE_EVERY_S * SCRAPE_EVERY_S
    raw, tiles = folder / "raw.txt", folder / "tiles.txt"
    with tiles.open("w", encoding="utf-8") as text:
        until_s = end_s - 2 * HOUR_S
        write_rules(text, script, Span.of_days(7, until_s=until_s), tile_s=HOUR_S)
    with raw.open("w", encoding="utf-8") as text:
        write_raw(text, script, Span(end_s - 2400, end_s), step_s=SCRAPE_EVERY_S)
    for path in (tiles, raw):
        make_blocks(path, folder / "tsdb")
        path.unlink()
    rules = folder / "rules.yml"
    often = re.sub(r"interval: (5m|1h)", "interval: 5s", RULES.read_text(encoding="utf-8"))
    rules.write_text(often, encoding="utf-8")
    with running_prometheus(needed("prometheus"), folder, [], rules=(rules,)) as server:
        series = round(server.value("count({__name__=~'gpumon_.+'})", time=str(end_s)))
        print(f"{script.hosts} hosts, {script.hosts * script.gpus:,} GPUs, {series:,} series")
        (process,) = (one for one in psutil.Process().children() if one.name() == "prometheus")
        before_s = cpu_s(process)
        passed = [report("group of tiles", group_s(server), GROUP_GOAL_S)]
        report("... CPU time, with the other groups", (cpu_s(process) - before_s) / TIMES)
        report("peer: increase() by cause", seconds_of(server, PEER, end_s))
        for name, query in WEEK.items():
            passed.append(report(f"7 days {name}", seconds_of(server, query, end_s), WEEK_GOAL_S))
        print(f"largest error of a tile: {largest_error(server, script, end_s):.4%}")
        print(f"resident memory of Prometheus: {process.memory_info().rss / 2**20:.0f} MiB")
    return 0 if all(passed) else 1


def cpu_s(process: psutil.Process) -> float:
    """CPU seconds that it has taken."""
    times = process.cpu_times()
    return float(times.user + times.system)


def group_s(server: Prometheus) -> float:
    """Median seconds of the evaluations of the group."""
    seconds: dict[str, float] = {}

    def enough() -> bool:
        groups = server.ask("rules")["groups"]
        group = next(one for one in groups if one["name"] == GROUP)
        if group["evaluationTime"]:
            seconds[group["lastEvaluation"]] = group["evaluationTime"]
        return len(seconds) == TIMES

    wait_until("the group was evaluated", enough, seconds=120)
    return statistics.median(seconds.values())


def seconds_of(server: Prometheus, query: str, at_s: int) -> float:
    """Median seconds of a query."""
    seconds = []
    for _ in range(TIMES):
        started_s = time.perf_counter()
        assert server.now(query, time=str(at_s)), query
        seconds.append(time.perf_counter() - started_s)
    return statistics.median(seconds)


def report(name: str, seconds: float, goal_s: float | None = None) -> bool:
    """Print a row; whether the goal is reached."""
    is_reached = goal_s is None or seconds <= goal_s
    goal = "" if goal_s is None else f"   goal {goal_s} s{'' if is_reached else ', MISSED'}"
    print(f"{name:36} {seconds:6.3f} s{goal}")
    return is_reached


def largest_error(server: Prometheus, script: FleetScript, at_s: int) -> float:
    """Of the rules that read counters, evaluated a minute after the last scrape."""
    truth, errors = growth_of_tiles(script), []
    for name, expression in tiles_of_counters().items():
        for sample in server.now(expression, time=str(at_s + 60)):
            due = truth.get(key_of(name, sample["metric"]))
            errors += [abs(float(sample["value"][1]) / due - 1)] if due else []
    assert len(errors) > script.hosts, "rules whose truth is known"
    return max(errors)


if __name__ == "__main__":
    sys.exit(main())
