"""What does a tick cost, next to a pynvml loop and nvitop-exporter's cycle, and how does it grow?

    python -m benchmarks.bench_tick [--hot]

All run on the same fake libnvidia-ml.so.1, where a driver call costs next to nothing, so this
compares the caller's own work. Its clock moves on by a second before each cycle. Each case is a
process of its own, a round is one process of each, and the rows are medians of the rounds. 50 ms
really pass between two cycles, so that caches are cold, as for a sampler; with ``--hot`` none do,
which leaves only the work. ``at work``: all GPUs
97 % busy. ``rhythm``: every GPU ends a pause in every cycle, the maximum. nvitop-exporter comes
with ``pip install -e '.[bench]'``.

``watched`` drains the driver in each tick, as while a page is open; ``everything`` as seldom as
nothing is lost, and its row is the mean of the ticks with a drain and without.

Then ticks of 64 GPUs are compared with those of 8, at work. ``ranks``: watched, and each GPU has a
rank of one job that makes twenty steps a second.
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench_nvml_read import bare_pynvml
from benchmarks.bench_serve import RING_DEPTH, WINDOW_S, memory_folder
from benchmarks.cpu_spent import spaced_cpu_us
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.state import MonitorState
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.nvml.source import NvmlSource
from tests.builders.monitor import reading, ring_reading
from tests.builders.nvml import DriverClock
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

GPUS, MANY_GPUS = 8, 64
ROUNDS = 5
WARM_UP_CYCLES, CYCLES = 20, 60
SPACING_S = 0.05
STEPS_A_SECOND = 20
SIGNALS = {"at work": 0.97, "rhythm": 0.7}
GOALS = {"everything": ("nvitop", 0.2)}
GROWING = ("tick", "watched", "everything", "ranks")
GROWTH_GOAL = MANY_GPUS / GPUS
_FIRST_PID = 4000


class Cycle(NamedTuple):
    """What is measured, and what happens before it and is not."""

    call: Callable[[], object]
    before: Callable[[], object] = lambda: None


def bare_cycle(fake: FakeNvml) -> Cycle:
    """A loop of five calls for each GPU."""
    return Cycle(bare_pynvml())


def tick_cycle(
    fake: FakeNvml,
    rings: Callable[[], RingsReading] = RingsReading,
    read_now: ReadNow = ReadNow.SAMPLES,
) -> Cycle:
    """Read, settle, diagnose: a tick without any outlet."""
    clock = DriverClock(fake)
    source = NvmlSource(clock, read_clock_ns=clock.read_clock_ns)
    monitor = Monitor(
        MonitorFacts(
            source="nvml", source_kind="nvml", simulated=False, period_ns=NS_PER_S,
            boot_id="", started_wall_time_s=0.0,
        )
    )  # fmt: skip

    def tick() -> object:
        frame = source.read(read_now)
        return monitor.ingest(reading(frame.taken_at_ns, frame, rings=rings()))

    return Cycle(tick)


def watched_cycle(
    fake: FakeNvml,
    rings: Callable[[], RingsReading] = RingsReading,
    read_now: ReadNow = ReadNow.SAMPLES,
) -> Cycle:
    """The same, and the rings, the state file, the history and the metrics are published."""
    from gpumon.outlets.http.server import HttpServer
    from gpumon.outlets.metrics.prometheus import MetricsExporter
    from gpumon.outlets.state_file import StateFile
    from gpumon.outlets.text.monitor_view import ViewBuilder
    from gpumon.pipeline.report_builder import Reports
    from gpumon.pipeline.state_report import report_of
    from gpumon.sources.ring_reader.phase_rings import PhaseRingReader

    tick, clock = tick_cycle(fake, rings, read_now).call, DriverClock(fake)
    reports = Reports()
    folder = Path(tempfile.mkdtemp(dir=fake.path.parent))
    (folder / "phases").mkdir()
    folders = PhaseRingReader((str(folder),), boot_id="")
    state_file = StateFile(folder / "state.json")
    exporter, views = MetricsExporter(clock=clock, version="0"), ViewBuilder()
    server = HttpServer(
        "127.0.0.1:0",
        exporter=exporter,
        clock=clock,
        report=lambda _: None,
        view=lambda state, cells: views.view(state, report_of(state), cells),
    )

    def cycle() -> object:
        folders.read(clock.monotonic_ns())
        state = tick()
        assert isinstance(state, MonitorState)
        reports.follow(state)
        state_file.write(state)
        server.publish(state)
        return state

    return Cycle(cycle)


def everything_cycle(fake: FakeNvml) -> Cycle:
    """The same while no user watches."""
    return watched_cycle(fake, read_now=ReadNow.NOTHING)


def ranks_cycle(fake: FakeNvml) -> Cycle:
    """The same while a user watches, with a rank of one job on each GPU."""
    began_ns = fake.now_ns()
    ranks = [
        ring_reading(
            RunFacts(
                run=f"run-r{slot}", job="job", rank=slot, world_size=fake.control.gpu_count,
                pid=_FIRST_PID + slot, boot_id="", started_ns=began_ns, gpus=(fake.uuid(slot),),
            )
        )
        for slot in range(fake.control.gpu_count)
    ]  # fmt: skip

    def train() -> None:
        ranks[:] = [_trained(rank, fake.now_ns()) for rank in ranks]

    call = watched_cycle(fake, lambda: RingsReading(rings=tuple(ranks))).call
    return Cycle(call, before=train)


def _trained(rank: RingReading, now_ns: int) -> RingReading:
    """The ring of the same rank a second later."""
    steps = rank.steps + STEPS_A_SECOND
    records = RingRecords.of(_steps(rank.steps, now_ns - NS_PER_S))
    return rank._replace(read_at_ns=now_ns, events=records, steps=steps, samples=32 * steps)


def _steps(done: int, since_ns: int) -> Iterable[RingEvent]:
    """A second of steps, each after a wait for a quarter of its time."""
    step_ns = NS_PER_S // STEPS_A_SECOND
    for number in range(STEPS_A_SECOND):
        at_ns = since_ns + number * step_ns
        yield RingEvent(RingKind.ENTER, at_ns + 1, TrainingPhase.INPUT_WAIT, 0)
        yield RingEvent(RingKind.ENTER, at_ns + step_ns // 4, TrainingPhase.TRAIN_STEP, 0)
        yield RingEvent(RingKind.STEP, at_ns + step_ns, TrainingPhase.TRAIN_STEP, done + number + 1)


def nvitop_cycle(fake: FakeNvml) -> Cycle:
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

    return Cycle(cycle)


CASES: dict[str, Callable[[FakeNvml], Cycle]] = {
    "bare": bare_cycle,
    "tick": tick_cycle,
    "watched": watched_cycle,
    "everything": everything_cycle,
    "ranks": ranks_cycle,
    "nvitop": nvitop_cycle,
}


def measure(case: str, gpus: int, busy_ratio: float, spacing_s: float) -> float:
    """CPU microseconds of one cycle, in this process."""
    with FakeNvml(Path(os.environ["FAKENVML_CTL"]), gpus=gpus) as fake:
        for slot in range(gpus):
            fake.gpu(slot).ring_depth = RING_DEPTH
            fake.wave(slot, period_s=1.0, busy_ratio=busy_ratio, window_s=WINDOW_S)
            fake.run(slot, _FIRST_PID + slot)
        fake.stop_clock()
        cycle = CASES[case](fake)

        def a_second_passes() -> None:
            fake.advance(1.0)
            cycle.before()

        for _ in range(WARM_UP_CYCLES):
            a_second_passes()
            cycle.call()
        gc.freeze()  # as the daemon does once it is up
        return spaced_cpu_us(cycle.call, times=CYCLES, spacing_s=spacing_s, before=a_second_passes)


def measured_in_a_process(case: str, *arguments: float, library: Path) -> float:
    """The same, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_tick", case, *map(str, arguments)],
        env=fake_env(library.with_name("control"), library.parent),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout.splitlines()[-1]))


def compare(cases: Iterable[str], *arguments: float, library: Path) -> dict[str, float]:
    """Medians of some rounds of these cases, in microseconds; arguments as in ``measure``."""
    rounds = [
        {case: measured_in_a_process(case, *arguments, library=library) for case in cases}
        for _ in range(ROUNDS)
    ]
    return {case: statistics.median(row[case] for row in rounds) for case in cases}


def _has_nvitop() -> bool:
    return importlib.util.find_spec("nvitop_exporter") is not None


def main() -> int:
    """Print the tables; 1 where a goal is missed."""
    spacing_s = 0.0 if "--hot" in sys.argv else SPACING_S
    cases = [name for name in CASES if name != "nvitop" or _has_nvitop()]
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        library = build_fake(Path(folder))
        costs = {
            signal: compare(cases, GPUS, busy_ratio, spacing_s, library=library)
            for signal, busy_ratio in SIGNALS.items()
        }
        many = compare(GROWING, MANY_GPUS, SIGNALS["at work"], spacing_s, library=library)
    print(f"{f'CPU of a cycle, {GPUS} GPUs':<24}" + "".join(f"{signal:>14}" for signal in costs))
    for case in cases:
        print(f"{case:<24}" + "".join(f"{cost[case]:>11.0f} us" for cost in costs.values()))
    if not _has_nvitop():
        print("nvitop-exporter is not installed: its row and its goal are left out")
    missed = [_print_comparison(case, peer, goal, costs) for case, (peer, goal) in GOALS.items()]
    print(f"{MANY_GPUS} GPUs at work")
    for case in GROWING:
        growth = many[case] / costs["at work"][case]
        missed.append(growth > GROWTH_GOAL)
        print(
            f"{case:<24}{many[case]:>11.0f} us, {growth:.1f} times that of {GPUS} "
            f"(goal: at most {GROWTH_GOAL:g})"
        )
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
    if len(sys.argv) == 5:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:]))))
    else:
        sys.exit(main())
