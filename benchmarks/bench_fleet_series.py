"""How many series has a machine with eight GPUs, and what do a fleet's cost Prometheus in memory?

    python -m benchmarks.bench_fleet_series [--targets 40]

A real daemon watches eight GPUs of the fake driver, which are busy for 70 % of the time, and a
tagged run. A real Prometheus with our rules
scrapes it as so many targets, and once alone: the difference of its memory is divided by that of
its series. A fleet of 200 such machines is extrapolated from that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.daemon import RunningDaemon
from tests.e2e.prometheus_server import running_prometheus
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml
from tests.needs import needed
from tests.processes import ending
from tests.programs import ROOT

RULES: Final = tuple(ROOT / "prometheus" / name for name in ("rules.yml", "alerts.yml"))
WATCHED_S: Final = 150
FLEET: Final = 200
GPUS: Final = 8
MOST_A_GPU: Final = 90
RUN: Final = """
import time
from trainer_hooks import phase, step, timed
for _ in timed(iter(int, 1)):
    with phase("train_step"):
        time.sleep(0.1)
    step(samples=8)
"""


class Cost(NamedTuple):
    """What a server holds."""

    series: float
    resident_bytes: float


def cost_of(address: str, folder: Path, targets: int) -> Cost:
    """Scrape so many targets for a while."""
    folder.mkdir()
    machines: list[dict[str, Any]] = [
        {"targets": [address], "labels": {"instance": f"machine-{number}:19835"}}
        for number in range(targets)
    ]
    jobs = [{"job_name": "gpumon", "scrape_interval": "15s", "static_configs": machines}]
    with running_prometheus(needed("prometheus"), folder, jobs, rules=RULES) as server:
        time.sleep(WATCHED_S)
        lines = server.own_metrics().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    names = ("prometheus_tsdb_head_series", "process_resident_memory_bytes")
    return Cost(*(float(values[name]) for name in names))


def main() -> int:
    """Print the series and the memory; 1 if a GPU has more series than promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--targets", type=int, default=40)
    targets = parser.parse_args().targets
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake = FakeNvml(folder / "gpus", gpus=GPUS)
        for slot in range(GPUS):
            fake.wave(slot, period_s=3.0, busy_ratio=0.7)
        environ = fake_env(folder / "gpus", build_fake(folder / "driver").parent)
        with RunningDaemon(folder, environ=environ) as daemon:
            run = subprocess.Popen(
                [sys.executable, "-c", RUN],
                env={**daemon.environ, "PYTHONPATH": str(ROOT), "GPUMON_GPUS": "0"},
            )
            for slot in range(GPUS):
                fake.run(slot, run.pid)
            with ending(run):
                time.sleep(60)
                lines = [line for line in daemon.get("/metrics")[1].splitlines() if line[0] != "#"]
                few = cost_of(daemon.address, folder / "few", 1)
                many = cost_of(daemon.address, folder / "many", targets)
    of_gpus = sum('uuid="' in line for line in lines)
    of_runs = sum('run="' in line and 'uuid="' not in line for line in lines)
    bytes_each = (many.resident_bytes - few.resident_bytes) / (many.series - few.series)
    each = (many.series - few.series) / (targets - 1)
    print(f"{len(lines)} series a machine: {of_gpus / GPUS:.0f} a GPU, {of_runs} of runs")
    print(f"with those of the rules {each:.0f}, {bytes_each / 1024:.1f} KiB of memory each")
    print(
        f"{FLEET} machines: {FLEET * each:,.0f} series, {FLEET * each * bytes_each / 2**30:.1f} GiB"
    )
    return int(of_gpus / GPUS > MOST_A_GPU)


if __name__ == "__main__":
    sys.exit(main())
