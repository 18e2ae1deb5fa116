"""How much of the driver's time does gpumon take, next to nvitop-exporter, gpustat and a loop?

    python -m benchmarks.bench_nvml_time [SECONDS]

All run at the same time, each on its own fake libnvidia-ml.so.1, which defines how long each
function takes: as on an H100 (``tests/fakenvml/call_prices.py``), PCIe throughput 20 ms, others
1 us. Then 10 us for every function, without expensive calls. Eight and sixteen GPUs, eight
processes. Once a second; then ten times, where nvitop-exporter has a minimum of a quarter of a
second.

The result is the defined time of the calls, independent of the load of the machine; a call that
only waits for an event counts as any other call.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.bench_serve import free_port
from gpumon.sources.nvml.fields.table import NVML_FIELDS
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.call_prices import CALL_US
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.layout import FUNCTIONS

DEFAULTS, EVERYTHING, EXPORTER = "gpumon", "gpumon, all fields", "nvitop-exporter"
GPUSTAT, BARE = "gpustat -i", "bare loop, 5 calls"
PEERS: Final = (DEFAULTS, EVERYTHING, EXPORTER, GPUSTAT, BARE)
PROCESSES: Final = 8
WARM_UP_S: Final = 6.0
GOAL_RATIO: Final = 0.25
ON_H100: Final[Mapping[str, float]] = {
    **dict.fromkeys(FUNCTIONS, 1), **CALL_US, "nvmlDeviceGetPcieThroughput": 20_000
}  # fmt: skip
"""Microseconds of each function."""
CHEAP: Final[Mapping[str, float]] = dict.fromkeys(FUNCTIONS, 10)

GPUSTAT_SHOWS: Final = (
    "name", "temperature", "fan", "utilization", "power", "power limit", "memory", "capacity"
)  # fmt: skip
LOOP: Final = """
import sys, time, pynvml
period_s = float(sys.argv[1])
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
at_s = time.monotonic()
while True:
    for handle in handles:
        pynvml.nvmlDeviceGetUtilizationRates(handle)
        pynvml.nvmlDeviceGetMemoryInfo(handle)
        pynvml.nvmlDeviceGetPowerUsage(handle)
        pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
        pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
    at_s = max(at_s + period_s, time.monotonic())
    time.sleep(max(0.0, at_s - time.monotonic()))
"""


@dataclass(frozen=True)
class Cost:
    """A peer's calls of the driver, by second."""

    calls: float
    seconds: float
    dearest: str


@dataclass(frozen=True)
class Peer:
    """A tool on a driver of its own."""

    fake: FakeNvml
    process: subprocess.Popen[bytes]
    port: int | None


def words(name: str, period_s: float, port: int) -> list[str]:
    """How a peer is started, as the words after ``python``."""
    if name in (DEFAULTS, EVERYTHING):
        serve = ["serve", "--no-store", "--period", str(period_s)]
        serve += ["--listen", f"127.0.0.1:{port}"]
        more = [field.name for field in NVML_FIELDS if field.opt_in]
        return ["-m", "gpumon", *serve, *(["--nvml-on", *more] if name == EVERYTHING else [])]
    if name == EXPORTER:
        interval = ["--interval", str(max(period_s, 0.25))]
        return ["-m", "nvitop_exporter", "--port", str(port), *interval]
    if name == GPUSTAT:
        return ["-m", "gpustat", "-i", str(period_s)]
    return ["-c", LOOP, str(period_s)]


def prepared(folder: Path, name: str, gpus: int, call_us: Mapping[str, float]) -> FakeNvml:
    """A driver with that many GPUs at work and eight processes on them."""
    fake = FakeNvml(folder / f"{PEERS.index(name)}.control", gpus=gpus)
    for slot in range(gpus):
        fake.wave(slot, period_s=1.0 + 0.1 * slot, busy_ratio=0.7)
    for number in range(PROCESSES):
        fake.run(number % gpus, os.getpid(), sm=40)
    for function, us in call_us.items():
        fake.delay(function, round(us))
    return fake


def compare(
    library: Path, gpus: int, period_s: float, call_us: Mapping[str, float], seconds: float
) -> tuple[dict[str, Cost], dict[str, int]]:
    """Run all peers for a while; what each cost, and how many values of a GPU it shows."""
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        folder = Path(text)
        peers: dict[str, Peer] = {}
        for name in PEERS:
            fake = stack.enter_context(prepared(folder, name, gpus, call_us))
            environ = {
                **fake_env(fake.path, library.parent),
                "GPUMON_RUNTIME_DIR": f"{folder}/run-{PEERS.index(name)}",
                "TERM": "xterm",
            }
            port = free_port()
            process = start_python(words(name, period_s, port), environ)
            stack.callback(end, process)
            peers[name] = Peer(fake, process, port if name in PEERS[:3] else None)
        time.sleep(WARM_UP_S)
        for peer in peers.values():
            peer.fake.forget_calls()
        began_s = time.monotonic()
        time.sleep(seconds)
        passed_s = time.monotonic() - began_s
        costs = {name: cost_of(peer, passed_s) for name, peer in peers.items()}
        return costs, {name: values_shown(name, peer) for name, peer in peers.items()}


def start_python(words: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a peer quietly."""
    return subprocess.Popen(
        [sys.executable, *words],
        env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    """End a peer that still has to be there."""
    alive = process.poll() is None
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if not alive:
        raise RuntimeError(f"it ended by itself: {process.args!r}")


def cost_of(peer: Peer, passed_s: float) -> Cost:
    """The calls since the counters were reset."""
    inside_s = peer.fake.seconds_inside()
    dearest = max(inside_s, key=lambda name: inside_s[name])
    share = inside_s[dearest] / sum(inside_s.values())
    return Cost(
        sum(peer.fake.all_calls().values()) / passed_s,
        sum(inside_s.values()) / passed_s,
        f"{dearest} {100 * share:.0f} %",
    )


def values_shown(name: str, peer: Peer) -> int:
    """Kinds of values of one GPU that a peer shows, those of its processes left out."""
    if peer.port is None:
        return 5 if name == BARE else len(GPUSTAT_SHOWS)
    url = f"http://127.0.0.1:{peer.port}/metrics"
    text = urllib.request.urlopen(url, timeout=30).read().decode()
    mine = [line for line in text.splitlines() if peer.fake.uuid(0) in line]
    families = {re.sub("_(bucket|sum|count)$", "", line.partition("{")[0]) for line in mine}
    return len([family for family in families if not family.startswith("process_")])


def main() -> int:
    """Print the tables; 1 where the goal is missed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        library = build_fake(Path(folder))
        for title, call_us in (("as on an H100", ON_H100), ("10 us for every function", CHEAP)):
            print(f"\n{title}")
            for gpus, period_s in ((8, 1.0), (16, 1.0), (8, 0.1), (16, 0.1)):
                costs, values = compare(library, gpus, period_s, call_us, seconds)
                print(f"{gpus} GPUs, {1 / period_s:g} Hz")
                theirs = costs[EXPORTER]
                for name, cost in costs.items():
                    print(
                        f"  {name:<20}{cost.calls:>9.1f} calls/s{1000 * cost.seconds:>10.2f} ms/s"
                        f"{cost.seconds / theirs.seconds:>8.3f}{values[name]:>5} kinds"
                        f"   {cost.dearest}"
                    )
                if call_us is ON_H100:
                    missed |= costs[DEFAULTS].seconds > GOAL_RATIO * theirs.seconds
                    missed |= values[DEFAULTS] <= values[EXPORTER]
    print(f"goal, as on an H100: at most {GOAL_RATIO:g} of {EXPORTER}'s time, with more kinds")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
