"""What does a report on 200 hosts of 8 GPUs over 7 days cost, and what if sums were made here?

A real Prometheus holds the tiles of the recording rules, and each minute's `gpumon_gpu_job_info` of
the worst runs. Each number is of a new process: `gpumon report --prometheus`, and one that fetches
the tiles of one rule and adds them up.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.fleet_block import (
    HOUR_S,
    FleetScript,
    Span,
    make_blocks,
    uuid_of,
    write_rules,
)
from tests.e2e.prometheus_server import running_prometheus

GOAL_S, GOAL_MIB = 5.0, 150.0
REPEATED = 5
OWNERS_EVERY_S = 60
WORST_RUNS = 10
_FETCH_TILES = """
import json, sys, urllib.parse, urllib.request
query = urllib.parse.urlencode({"query": "host_cause:gpumon_gpu_lost_seconds:increase1h[7d]"})
with urllib.request.urlopen(f"{sys.argv[1]}/api/v1/query?{query}") as answer:
    series = json.load(answer)["data"]["result"]
print(sum(float(value) for one in series for _, value in one["values"]))
"""


class Cost(NamedTuple):
    """Of one process."""

    seconds: float
    peak_mib: float


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Cost(time.monotonic() - began, used.ru_maxrss / 1_024)


def write_block(folder: Path, script: FleetScript) -> None:
    """A week of hourly tiles, and who owned the worst runs."""
    span = Span.of_days(7, until_s=time.time())
    text_path = folder / "fleet.txt"
    with text_path.open("w") as text:
        write_rules(text, script, span, tile_s=HOUR_S)
        lost = script.lost_seconds("run", 1.0)
        worst = sorted(filter(None, lost), key=lost.__getitem__)[-WORST_RUNS:]
        for number, (host, job) in enumerate(script):
            for gpu in range(script.gpus if job.run in worst else 0):
                labels = (
                    f'instance="{host}:19835",uuid="{uuid_of(number, gpu)}",run="{job.run}",'
                    f'user="{job.user}"'
                )
                text.writelines(
                    f"gpumon_gpu_job_info{{{labels}}} 1 {at}\n" for at in span.times(OWNERS_EVERY_S)
                )
    make_blocks(text_path, folder / "tsdb")


def main() -> int:
    """Print the costs; 1: a goal was missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_block(folder, FleetScript(hosts=200))
        with running_prometheus("prometheus", folder, []) as server:
            report = [sys.executable, "-m", "gpumon", "report", "--prometheus", server.url]
            fetch = [sys.executable, "-c", _FETCH_TILES, server.url]
            costs = {
                title: [cost_of(command) for _ in range(REPEATED)]
                for title, command in (
                    ("gpumon report", [*report, "--price", "2.50"]),
                    ("gpumon report --by host --json", [*report, "--by", "host", "--json"]),
                    ("peer: the tiles of one rule, fetched and added up here", fetch),
                )
            }
    print(f"{'200 hosts, 8 GPUs each, 7 days':<58}{'median s':>9}{'worst s':>9}{'MiB':>7}")
    for title, found in costs.items():
        seconds = [cost.seconds for cost in found]
        peak = max(cost.peak_mib for cost in found)
        print(f"{title:<58}{statistics.median(seconds):>9.2f}{max(seconds):>9.2f}{peak:>7.0f}")
    worst = costs["gpumon report"]
    is_met = max(cost.seconds for cost in worst) < GOAL_S and all(
        cost.peak_mib <= GOAL_MIB for cost in worst
    )
    print(f"goal: below {GOAL_S:g} s and {GOAL_MIB:g} MiB: {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
