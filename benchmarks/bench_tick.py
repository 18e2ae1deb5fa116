"""What does a tick cost for eight GPUs, next to a bare pynvml loop and nvitop-exporter's cycle?

    python -m benchmarks.bench_tick

All run on the same fake libnvidia-ml.so.1, where a driver call costs next to nothing, so this
compares the caller's own work. Each case is a process of its own, a round is one process of each,
and the rows are medians of the rounds. 50 ms pass between two cycles, so that caches are cold, as
for a sampler. ``at work``: all GPUs 97 % busy. ``rhythm``: every GPU ends a pause in every cycle,
the maximum. nvitop-exporter comes with ``pip install -e '.[bench]'``.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_nvml_read import bare_pynvml, gpumon_source
from benchmarks.bench_serve import memory_folder
from benchmarks.cpu_spent import spaced_cpu_us
from gpumon.core.ring_format.events import RingsReading
from gpumon.core.sample import Reading, Tick
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

GPUS = 8
ROUNDS = 5
CYCLES = 60
SPACING_S = 0.05
SAMPLES_A_CYCLE = 6
SIGNALS = {"at work": 0.97, "rhythm": 0.7}
GOALS = {"tick": ("bare", 3.0), "everything": ("nvitop", 0.2)}

Cycle = Callable[[], object]


def tick_cycle() -> Cycle:
    """Read, settle, diagnose: a tick without any outlet."""
    source = gpumon_source()
    monitor = Monitor(
        MonitorFacts(
            source="nvml", source_kind="nvml", simulated=False, period_ns=50_000_000,
            boot_id="", started_wall_time_s=0.0,
        )
    )  # fmt: skip
    rings = RingsReading()

    def cycle() -> object:
        frame = source.read()
        tick = Tick(
            at_ns=frame.taken_at_ns, late_ns=0, frames=(frame,), missed_count=0, error=None,
            duration_seconds=0.0,
        )  # fmt: skip
        return monitor.ingest(Reading(tick, rings, 0.0))

    return cycle


def everything_cycle() -> Cycle:
    """The same, and the rings, the state file, the history and the metrics are published."""
    from gpumon.core.state import MonitorState
    from gpumon.outlets.http.server import HttpServer
    from gpumon.outlets.metrics.prometheus import MetricsExporter
    from gpumon.outlets.state_file import StateFile
    from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
    from gpumon.sources.system_clock import SystemClock

    tick, clock = tick_cycle(), SystemClock()
    folder = Path(tempfile.mkdtemp(dir=memory_folder()))
    (folder / "phases").mkdir()
    rings = PhaseRingReader((str(folder),), boot_id="")
    state_file = StateFile(folder / "state.json")
    exporter = MetricsExporter(clock=clock, version="0")
    server = HttpServer(
        "127.0.0.1:0",
        exporter=exporter,
        clock=clock,
        report=lambda _: None,
        texts=lambda _: {"notes": [], "advice": []},
    )

    def cycle() -> object:
        rings.read(clock.monotonic_ns())
        state = tick()
        assert isinstance(state, MonitorState)
        state_file.write(state)
        server.publish(state)
        return state

    return cycle


def nvitop_cycle() -> Cycle:
    """What nvitop-exporter does once a second."""
    from nvitop import Device
    from nvitop_exporter.exporter import PrometheusExporter
    from prometheus_client import CollectorRegistry

    devices = Device.all()
    exporter = PrometheusExporter(devices, registry=CollectorRegistry(), interval=0.001)

    def cycle() -> object:
        exporter.update_host()
        for device in devices:
            exporter.update_device(device)
        return None

    return cycle


CASES: dict[str, Callable[[], Cycle]] = {
    "bare": bare_pynvml,
    "tick": tick_cycle,
    "everything": everything_cycle,
    "nvitop": nvitop_cycle,
}


def measure(case: str) -> float:
    """CPU microseconds of one cycle, in this process."""
    cycle = CASES[case]()
    for _ in range(20):
        cycle()
    gc.freeze()  # as the daemon does once it is up
    return spaced_cpu_us(cycle, times=CYCLES, spacing_s=SPACING_S)


def measured_in_a_process(case: str, environ: dict[str, str]) -> float:
    """The same, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_tick", case],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout.splitlines()[-1]))


def compare(environ: dict[str, str], busy_ratio: float, fake: FakeNvml) -> dict[str, float]:
    """Medians of some rounds of all cases, in microseconds."""
    for slot in range(GPUS):
        window_s = SPACING_S / SAMPLES_A_CYCLE
        fake.wave(slot, period_s=SPACING_S, busy_ratio=busy_ratio, window_s=window_s)
    cases = [name for name in CASES if name != "nvitop" or _has_nvitop()]
    rounds = [{case: measured_in_a_process(case, environ) for case in cases} for _ in range(ROUNDS)]
    return {case: statistics.median(row[case] for row in rounds) for case in cases}


def _has_nvitop() -> bool:
    return importlib.util.find_spec("nvitop_exporter") is not None


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        library = build_fake(Path(folder))
        with FakeNvml(Path(folder) / "control", gpus=GPUS) as fake:
            for slot in range(GPUS):
                fake.run(slot, os.getpid())
            environ = fake_env(fake.path, library.parent)
            costs = {
                signal: compare(environ, busy_ratio, fake) for signal, busy_ratio in SIGNALS.items()
            }
    print(f"{'CPU of a cycle, 8 GPUs':<24}" + "".join(f"{signal:>14}" for signal in costs))
    for case in next(iter(costs.values())):
        print(f"{case:<24}" + "".join(f"{cost[case]:>11.0f} us" for cost in costs.values()))
    if not _has_nvitop():
        print("nvitop-exporter is not installed: its row and its goal are left out")
    missed = [_print_comparison(case, peer, goal, costs) for case, (peer, goal) in GOALS.items()]
    return int(any(missed))


def _print_comparison(
    case: str, peer: str, goal: float, costs: dict[str, dict[str, float]]
) -> bool:
    """Print how a goal was met, for each signal; whether it was missed at work."""
    if peer not in costs["at work"]:
        return False
    ratios = {signal: cost[case] / cost[peer] for signal, cost in costs.items()}
    reported = ", ".join(f"{ratio:.2f} {signal}" for signal, ratio in ratios.items())
    print(f"{case} / {peer}: {reported} (goal: at most {goal:g})")
    return ratios["at work"] > goal


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(measure(sys.argv[1])))
    else:
        sys.exit(main())
