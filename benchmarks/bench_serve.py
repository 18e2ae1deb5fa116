"""What does a minute of ``gpumon serve`` cost, next to a minute of nvitop-exporter?

    python -m benchmarks.bench_serve [SECONDS]
    python -m benchmarks.bench_serve --scrapes

Eight GPUs of the same fake libnvidia-ml.so.1, both once a second, at the same time, each scraped
every fifteen seconds as by Prometheus. CPU is the process's user and system time, memory its
resident set at the end.

Afterwards, or alone with ``--scrapes``: the time of a thousand scrapes of gpumon, alone and with
two hundred clients that never complete their request. Then two hundred scrapes of large machines,
as Prometheus makes them (OpenMetrics, gzip, one connection), beside as many of nvitop-exporter.
They come twenty a second, so that every twentieth renders a new tick.
"""

from __future__ import annotations

import gzip
import http.client
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml
from tests.half_open_clients import half_open_clients, quantile, scrape_times

GPUS = 8
WARM_UP_S = 5.0
SCRAPE_EVERY_S = 15.0
CPU_GOAL_RATIO = 0.25
MEMORY_GOAL_MIB = 38.0
SCRAPES, HALF_OPEN, ROUNDS = 1_000, 200, 3
P99_GOAL_S = 0.05
LARGE_SCRAPES, LARGE_SPACING_S = 200, 0.05
CPU_OF_SCRAPES_GOAL_RATIO = 0.5
AS_PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2",
    "Accept-Encoding": "gzip",
}


class LargeMachine(NamedTuple):
    """A machine with many series, and how long a scrape may take."""

    gpus: int
    instances_each: int
    idle_runs: int
    p99_goal_s: float


LARGE_MACHINES = {
    "16 GPUs": LargeMachine(16, 0, 0, 0.010),
    "16 GPUs of 7 MIG instances, 100 idle runs": LargeMachine(16, 7, 100, 0.020),
}


class Cost(NamedTuple):
    """What a process has taken so far."""

    cpu_s: float
    memory_mib: float


def cost_of(pid: int) -> Cost:
    """CPU of a process with all its threads, ended ones included, and its resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    # The id of a process's CPU clock, as clock_getcpuclockid(3) makes it.
    return Cost(time.clock_gettime((~pid << 3) | 2), pages * os.sysconf("SC_PAGE_SIZE") / 2**20)


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


def scrapes_with_slow_clients(address: str) -> bool:
    """Print how long scrapes take, alone and with half-open clients, in turns.

    Returns:
        Whether the goal was missed.
    """
    times_s: dict[int, list[float]] = {0: [], HALF_OPEN: []}
    for _ in range(ROUNDS):
        for clients, taken_s in times_s.items():
            with half_open_clients(address, clients):
                taken_s += scrape_times(address, SCRAPES)
    p50_s, p99_s = ({n: quantile(sorted(t), q) for n, t in times_s.items()} for q in (0.5, 0.99))
    print(f"{ROUNDS} times {SCRAPES} scrapes, all answered, milliseconds:")
    for clients in times_s:
        print(
            f"  with {clients:>3} half-open clients: p50 {1e3 * p50_s[clients]:.1f}, "
            f"p99 {1e3 * p99_s[clients]:.1f}"
        )
    ratio = p99_s[HALF_OPEN] / p99_s[0]
    goal = f"goal: at most {1e3 * P99_GOAL_S:.0f} ms with them"
    print(f"  ratio: p50 {p50_s[HALF_OPEN] / p50_s[0]:.2f}, p99 {ratio:.2f} ({goal})")
    return p99_s[HALF_OPEN] > P99_GOAL_S


def scrapes_of_large_machines() -> bool:
    """Print how long scrapes of large machines take; whether a goal was missed."""
    missed = [_scrapes_of(name, machine) for name, machine in LARGE_MACHINES.items()]
    return any(missed)


def _scrapes_of(name: str, machine: LargeMachine) -> bool:
    from benchmarks.bench_rings import Case, make_idle_ring  # imports this file

    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder, ExitStack() as running:
        library = build_fake(Path(folder))
        fake = running.enter_context(FakeNvml(Path(folder) / "control", gpus=machine.gpus))
        for slot in range(machine.gpus):
            fake.wave(slot, period_s=1.0 + 0.1 * slot, busy_ratio=0.7)
            if machine.instances_each:
                fake.cut(slot, machine.instances_each)
        runtime = Path(folder) / "run"
        (runtime / "phases").mkdir(parents=True, mode=0o700)
        rings = [
            make_idle_ring(runtime / "phases", Case(machine.idle_runs, 0), number)
            for number in range(machine.idle_runs)
        ]
        environ = {**fake_env(fake.path, library.parent), "GPUMON_RUNTIME_DIR": str(runtime)}
        peers = {}
        for peer in ("gpumon", *(["nvitop-exporter"] if _has_nvitop() else [])):
            port = free_port()
            process = running.enter_context(start(_words(peer, port), environ))
            running.callback(process.terminate)
            peers[peer] = (process, port)
        time.sleep(2 * WARM_UP_S)
        is_missed = _print_scrapes(name, machine, peers)
        del rings
    return is_missed


def _has_nvitop() -> bool:
    return importlib.util.find_spec("nvitop_exporter") is not None


def _words(peer: str, port: int) -> list[str]:
    if peer == "gpumon":
        return ["gpumon", "serve", "--listen", f"127.0.0.1:{port}"]
    return ["nvitop_exporter", "--port", str(port)]


def _print_scrapes(
    name: str, machine: LargeMachine, peers: dict[str, tuple[subprocess.Popen[bytes], int]]
) -> bool:
    clients = {
        peer: http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for peer, (_, port) in peers.items()
    }
    times_s: dict[str, list[float]] = {peer: [] for peer in peers}
    bodies: dict[str, bytes] = {}
    before = {peer: cost_of(process.pid) for peer, (process, _) in peers.items()}
    for _ in range(LARGE_SCRAPES):
        for peer, client in clients.items():
            began_s = time.perf_counter()
            client.request("GET", "/metrics", headers=AS_PROMETHEUS)
            bodies[peer] = client.getresponse().read()
            times_s[peer].append(time.perf_counter() - began_s)
        time.sleep(LARGE_SPACING_S)
    cpu_s = {
        peer: cost_of(process.pid).cpu_s - before[peer].cpu_s
        for peer, (process, _) in peers.items()
    }
    print(f"{name}: {LARGE_SCRAPES} scrapes, milliseconds:")
    for peer, taken_s in times_s.items():
        p50_s, p99_s = (quantile(sorted(taken_s), share) for share in (0.5, 0.99))
        series = sum(not line.startswith(b"#") for line in _plain(bodies[peer]).splitlines())
        print(
            f"  {peer:<16} p50 {1e3 * p50_s:.1f}, p99 {1e3 * p99_s:.1f}, CPU {cpu_s[peer]:.2f} s, "
            f"{series} series, {len(bodies[peer])} bytes"
        )
    p99_s = quantile(sorted(times_s["gpumon"]), 0.99)
    print(f"  goal: p99 at most {1e3 * machine.p99_goal_s:.0f} ms")
    is_missed = p99_s > machine.p99_goal_s
    if "nvitop-exporter" in cpu_s:
        ratio = cpu_s["gpumon"] / cpu_s["nvitop-exporter"]
        print(f"  CPU gpumon / nvitop-exporter: {ratio:.2f} (goal: {CPU_OF_SCRAPES_GOAL_RATIO:g})")
        is_missed |= ratio > CPU_OF_SCRAPES_GOAL_RATIO
    return is_missed


def _plain(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def memory_folder() -> str | None:
    """Where files live in memory, as /run does on every Linux with systemd."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def main() -> int:
    """Print the tables; 1 where a goal is missed."""
    words = sys.argv[1:]
    only_scrapes = words == ["--scrapes"]
    seconds = float(words[0]) if words and not only_scrapes else 60.0
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        library = build_fake(Path(folder))
        with FakeNvml(Path(folder) / "control", gpus=GPUS) as fake:
            for slot in range(GPUS):
                fake.wave(slot, period_s=1.0 + 0.1 * slot, busy_ratio=0.7)
                fake.run(slot, os.getpid())
            environ = {**fake_env(fake.path, library.parent), "GPUMON_RUNTIME_DIR": f"{folder}/run"}
            ports = {"gpumon": free_port(), "nvitop-exporter": free_port()}
            listen = f"127.0.0.1:{ports['gpumon']}"
            commands = {
                "gpumon": ["gpumon", "serve", "--listen", listen],
                "nvitop-exporter": ["nvitop_exporter", "--port", str(ports["nvitop-exporter"])],
            }
            if only_scrapes:
                del commands["nvitop-exporter"]
            peers = {name: (start(commands[name], environ), ports[name]) for name in commands}
            try:
                costs = watch(peers, 0.1 if only_scrapes else seconds)
                is_missed = scrapes_with_slow_clients(listen)
            finally:
                for process, _ in peers.values():
                    process.terminate()
                    process.wait(10)
    is_missed |= scrapes_of_large_machines()
    return int(is_missed if only_scrapes else is_missed | print_costs(costs, seconds))


def print_costs(costs: dict[str, Cost], seconds: float) -> bool:
    """Print what each took, and say whether a goal was missed."""
    print(json.dumps({name: cost._asdict() for name, cost in costs.items()}))
    for name, cost in costs.items():
        percent = 100 * cost.cpu_s / seconds
        print(f"{name:<16}{percent:>8.2f} % of one core{cost.memory_mib:>8.1f} MiB")
    ratio = costs["gpumon"].cpu_s / costs["nvitop-exporter"].cpu_s
    print(f"CPU gpumon / nvitop-exporter: {ratio:.2f} (goal: at most {CPU_GOAL_RATIO:g})")
    print(f"memory of gpumon: {costs['gpumon'].memory_mib:.1f} MiB (goal: {MEMORY_GOAL_MIB:g})")
    return ratio > CPU_GOAL_RATIO or costs["gpumon"].memory_mib > MEMORY_GOAL_MIB


if __name__ == "__main__":
    sys.exit(main())
