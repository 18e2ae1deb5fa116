"""What a minute of ``gpumon serve`` costs, beside a minute of nvitop-exporter.

    python -m benchmarks.bench_serve [SECONDS]

Eight GPUs of the same fake libnvidia-ml.so.1, both once a second, at the same
time, each scraped every fifteen seconds as Prometheus would. CPU is user and
system time of the process, memory its resident set at the end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

GPUS = 8
WARM_UP_S = 5.0
SCRAPE_EVERY_S = 15.0
CPU_GOAL_RATIO = 0.25
MEMORY_GOAL_MIB = 38.0


class Cost(NamedTuple):
    """What a process has taken so far."""

    cpu_s: float
    memory_mib: float


def cost_of(pid: int) -> Cost:
    """CPU and resident memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Cost(ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(words: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a peer quietly."""
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def watch(peers: dict[str, tuple[subprocess.Popen[bytes], int]], seconds: float) -> dict[str, Cost]:
    """Let them run, scrape them now and then, and say what each took."""
    time.sleep(WARM_UP_S)
    before = {name: cost_of(process.pid) for name, (process, _) in peers.items()}
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        for _, port in peers.values():
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
        time.sleep(min(SCRAPE_EVERY_S, left_s))
    after = {name: cost_of(process.pid) for name, (process, _) in peers.items()}
    return {
        name: Cost(after[name].cpu_s - before[name].cpu_s, after[name].memory_mib) for name in peers
    }


def memory_folder() -> str | None:
    """Where files live in memory, as /run does on every Linux with systemd."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        library = build_fake(Path(folder))
        with FakeNvml(Path(folder) / "control", gpus=GPUS) as fake:
            for slot in range(GPUS):
                fake.wave(slot, period_s=1.0 + 0.1 * slot, busy_ratio=0.7)
                fake.run(slot, os.getpid())
            environ = {**fake_env(fake.path, library.parent), "GPUMON_RUNTIME_DIR": f"{folder}/run"}
            ports = {"gpumon": free_port(), "nvitop-exporter": free_port()}
            listen = f"127.0.0.1:{ports['gpumon']}"
            words = {
                "gpumon": ["gpumon", "serve", "--listen", listen],
                "nvitop-exporter": ["nvitop_exporter", "--port", str(ports["nvitop-exporter"])],
            }
            peers = {name: (start(words[name], environ), ports[name]) for name in words}
            try:
                costs = watch(peers, seconds)
            finally:
                for process, _ in peers.values():
                    process.terminate()
                    process.wait(10)
    print(json.dumps({name: cost._asdict() for name, cost in costs.items()}))
    for name, cost in costs.items():
        percent = 100 * cost.cpu_s / seconds
        print(f"{name:<16}{percent:>8.2f} % of one core{cost.memory_mib:>8.1f} MiB")
    ratio = costs["gpumon"].cpu_s / costs["nvitop-exporter"].cpu_s
    print(f"CPU gpumon / nvitop-exporter: {ratio:.2f} (goal: at most {CPU_GOAL_RATIO:g})")
    print(f"memory of gpumon: {costs['gpumon'].memory_mib:.1f} MiB (goal: {MEMORY_GOAL_MIB:g})")
    return int(ratio > CPU_GOAL_RATIO or costs["gpumon"].memory_mib > MEMORY_GOAL_MIB)


if __name__ == "__main__":
    sys.exit(main())
