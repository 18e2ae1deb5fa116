"""What phase rings cost a running daemon: 16 busy ones, and 100 in which nothing happens.

    python -m benchmarks.bench_rings [SECONDS]

Real daemons run side by side on eight simulated GPUs: one without a ring, one
with 16 rings into which 10,000 transitions a second are written, one with 100 rings
whose trainings do nothing. What the rings cost is the CPU time of a daemon less that of
the one without. The rings belong to a process of their own that paces itself by the
clock and says in the end what it wrote. Each ring names one GPU; a step is two
transitions, ``input_wait`` and ``train_step``. A fourth daemon reads 16 rings in which
every step and its samples are counted too, which makes 20,000 records a second of the same
10,000 transitions: told beside the goal, not held against it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_events import RunFacts
from gpumon.sources.system_clock import read_boot_id
from trainer_hooks.ring.ring_folder import RingFolder
from trainer_hooks.ring.ring_memory import make_ring
from trainer_hooks.ring.ring_writer import RingWriter

GPUS = 8
BUSY_RINGS = 16
IDLE_RINGS = 100
TRANSITIONS_A_SECOND = 10_000
ROUND_S = 0.01
WARM_UP_S = 5.0
GOAL_PERCENT = 0.5

_INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
_TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


class Case(NamedTuple):
    """One daemon: how many rings it reads, and what is written into them."""

    rings: int
    transitions_a_second: int
    counts_steps: bool = False


CASES = {
    "no ring": Case(0, 0),
    f"{BUSY_RINGS} rings, {TRANSITIONS_A_SECOND} transitions/s": Case(
        BUSY_RINGS, TRANSITIONS_A_SECOND
    ),
    f"{BUSY_RINGS} rings, and steps counted": Case(BUSY_RINGS, TRANSITIONS_A_SECOND, True),
    f"{IDLE_RINGS} rings, idle": Case(IDLE_RINGS, 0),
}


def write_rings(folder: Path, case: Case) -> None:
    """Make the rings, write into them at an even pace until stdin ends, then say how much."""
    phases = folder / "phases"
    boot_id = read_boot_id()
    writers = []
    for number in range(case.rings):
        facts = RunFacts(
            run=f"run-{number}", job=f"job-{number}", pid=os.getpid(), boot_id=boot_id,
            started_ns=time.monotonic_ns(), gpus=(str(number % GPUS),),
        )  # fmt: skip
        ring = make_ring(RingFolder(phases, 0o600), facts, wall_ns=time.time_ns())
        writers.append(RingWriter(ring, facts))
    print("there", flush=True)
    os.set_blocking(sys.stdin.fileno(), False)
    began_s, steps = time.monotonic(), 0
    while sys.stdin.buffer.raw.read(1) is None:  # type: ignore[union-attr]
        due = int((time.monotonic() - began_s) * case.transitions_a_second / 2)
        while steps < due:
            writer = writers[steps % len(writers)]
            writer.enter(_INPUT_WAIT)
            writer.enter(_TRAIN_STEP)
            if case.counts_steps:
                writer.step(1, 32)
            steps += 1
        time.sleep(ROUND_S)
    print(json.dumps(2 * steps / (time.monotonic() - began_s)), flush=True)


class Peer:
    """A daemon and the process that writes its rings."""

    def __init__(self, folder: Path, name: str) -> None:
        case = CASES[name]
        (folder / "phases").mkdir(parents=True, mode=0o700)
        environ = {**os.environ, "GPUMON_RUNTIME_DIR": str(folder)}
        words = ["serve", "--source", f"follow:{folder}/busy.jsonl", "--listen", "127.0.0.1:0"]
        self.writer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bench_rings", "--write", str(folder), name],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.writer.stdout is not None
        assert self.writer.stdout.readline() == "there\n"
        self.daemon = subprocess.Popen(
            [sys.executable, "-m", "gpumon", *words],
            env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.state_file = folder / "state.json"
        self.case = case

    def cpu_s(self) -> float:
        """CPU time of the daemon so far, in seconds."""
        times = psutil.Process(self.daemon.pid).cpu_times()
        return float(times.user + times.system)

    def end(self) -> float:
        """Stop both; how many transitions a second there were."""
        state = json.loads(self.state_file.read_bytes())
        assert len(state["runs"]) == self.case.rings, "the daemon did not read every ring"
        said, _ = self.writer.communicate("", timeout=30)
        self.daemon.terminate()
        self.daemon.wait(10)
        return float(said)


def _write_busy_spans(folders: list[Path]) -> None:
    """Every GPU busy for 70 % of the last second, so that each window has idle time to share."""
    now_ns = time.monotonic_ns()
    for folder in folders:
        with (folder / "busy.jsonl").open("a") as file:
            for gpu in range(GPUS):
                span = {"gpu": gpu, "start_ns": now_ns - 700_000_000, "end_ns": now_ns}
                file.write(json.dumps(span) + "\n")


def measure(folder: Path, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Percent of a core of each daemon, and transitions a second of its rings."""
    with ExitStack() as ended:
        places = {name: folder / str(number) for number, name in enumerate(CASES)}
        peers = {name: Peer(place, name) for name, place in places.items()}
        for peer in peers.values():
            ended.callback(peer.daemon.kill)
            ended.callback(peer.writer.kill)
        before: dict[str, float] = {}
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < WARM_UP_S + seconds:
            if not before and passed_s >= WARM_UP_S:
                before, since_s = {name: peer.cpu_s() for name, peer in peers.items()}, passed_s
            _write_busy_spans(list(places.values()))
            time.sleep(1.0)
        spent_s = {name: peer.cpu_s() - before[name] for name, peer in peers.items()}
        lasted_s = time.monotonic() - began_s - since_s
        rates = {name: peer.end() for name, peer in peers.items()}
    return {name: 100 * spent / lasted_s for name, spent in spent_s.items()}, rates


def main() -> int:
    """Print the table; 1 where the goal is missed."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory(dir=_memory_folder()) as folder:
        percents, rates = measure(Path(folder), seconds)
    base = percents["no ring"]
    print(f"{'one core, in percent':<38}{'daemon':>8}{'rings':>8}{'transitions/s':>15}")
    for name, percent in percents.items():
        print(f"{name:<38}{percent:>8.2f}{percent - base:>8.2f}{rates[name]:>15.0f}")
    cost = max(percents[name] - base for name, case in CASES.items() if not case.counts_steps)
    print(f"the rings cost at most {cost:.2f} % (goal: {GOAL_PERCENT:g} %)")
    return int(cost > GOAL_PERCENT)


def _memory_folder() -> str | None:
    """Where files live in memory, as /run does on every Linux with systemd."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_rings(Path(sys.argv[2]), CASES[sys.argv[3]])
    else:
        sys.exit(main())
