"""What do stack samples cost the training run, and the daemon that takes them?

    python -m benchmarks.bench_stacks [ROUNDS] [--loops N]

A training loop that only computes runs beside ``gpumon why``, beside ``gpumon serve --stacks`` and
beside ``py-spy record``, which samples a hundred times a second. In each round one of them works
for three seconds and is stopped (SIGSTOP) for three seconds, in changing order; the ratio of the
loop's steps in both is the figure, and *nothing* is how far two such stretches differ anyway. The
fake GPU is busy every other second, whatever the loop does, so that each tool samples at its usual
times. ``--loops`` runs several loops; with one for each core, all that a tool takes is theirs.

The second table has the CPU of two daemons, with and without ``--stacks``, in the same minute, in
percent of a core, py-spy's included.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from gpumon.sources.stacks.py_spy import find_py_spy
from gpumon.sources.stacks.stack_sampler import MOST_CPU_RATIO
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

STRETCH_S: Final = 3.0
WARM_UP_S: Final = 4.0
MOST_LOST: Final = 0.01
DAEMON_S: Final = 60.0
PERIOD_S, BUSY_RATIO = 2.0, 0.5
TRAINING: Final = """
import mmap, struct, sys
import numpy

def forward(rows, weights):
    return numpy.tanh(rows @ weights)

def train(counter):
    rng = numpy.random.default_rng(1)
    rows, weights = rng.random((64, 64)), rng.random((64, 64)) / 64
    steps = 0
    while True:
        loss = float((forward(rows, weights) ** 2).mean())
        weights *= 1 - 1e-6 * loss
        steps += 1
        struct.pack_into("<Q", counter, 0, steps)

with open(sys.argv[1], "r+b") as file:
    train(mmap.mmap(file.fileno(), 8))
"""


class Loop:
    """A training loop, and how many steps it has made."""

    def __init__(self, folder: Path, number: int) -> None:
        self._counter = folder / f"steps-{number}"
        self._counter.write_bytes(bytes(8))
        script = folder / "train.py"
        script.write_text(TRAINING)
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(self._counter)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    @property
    def steps(self) -> int:
        count: int = struct.unpack("<Q", self._counter.read_bytes())[0]
        return count


class Cost(NamedTuple):
    """Steps beside a tool, as a share of those without.

    Attributes:
        median: Of all rounds.
        error: Standard error of the mean, 1 is the whole.
        low: Lower quartile of the rounds.
        high: Upper quartile.
    """

    median: float
    error: float
    low: float
    high: float


def rate(loops: Sequence[Loop]) -> float:
    """Steps a second of all loops, now."""
    began_s, before = time.monotonic(), sum(loop.steps for loop in loops)
    time.sleep(STRETCH_S)
    return (sum(loop.steps for loop in loops) - before) / (time.monotonic() - began_s)


def cost(tool: subprocess.Popen[bytes] | None, loops: Sequence[Loop], rounds: int) -> Cost:
    """Let the tool work and rest in turn."""
    ratios = []
    for number in range(rounds):
        rates = {}
        for works in (True, False) if number % 2 else (False, True):
            if tool is not None:
                assert tool.poll() is None, "it ended early"
                os.kill(tool.pid, signal.SIGCONT if works else signal.SIGSTOP)
            rates[works] = rate(loops)
        ratios.append(rates[True] / rates[False])
    if tool is not None:
        os.kill(tool.pid, signal.SIGCONT)
    low, _, high = statistics.quantiles(ratios, n=4)
    error = statistics.stdev(ratios) / math.sqrt(rounds)
    return Cost(statistics.median(ratios), error, low, high)


@contextmanager
def started(words: Sequence[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A tool that has begun its work."""
    process = subprocess.Popen(
        words, env=dict(environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(WARM_UP_S)
        yield process
    finally:
        process.kill()
        process.wait()


def serve(folder: Path, *more: str) -> list[str]:
    """The command of a daemon with a runtime folder of its own."""
    folder.mkdir(exist_ok=True)
    return [
        "env", f"GPUMON_RUNTIME_DIR={folder}", sys.executable, "-m", "gpumon", "serve",
        "--listen", "127.0.0.1:0", *more,
    ]  # fmt: skip


def cpu_of_daemons(
    folder: Path, environ: Mapping[str, str], seconds: float
) -> dict[str, tuple[float, float]]:
    """CPU of a daemon with and without ``--stacks``, and of its children, as shares of a core."""
    options = {"serve": [], "serve --stacks": ["--stacks"]}
    with ExitStack() as open_until_end:
        daemons = {
            name: psutil.Process(
                open_until_end.enter_context(started(serve(folder / name, *more), environ)).pid
            )
            for name, more in options.items()
        }
        before = {name: daemon.cpu_times() for name, daemon in daemons.items()}
        time.sleep(seconds)
        after = {name: daemon.cpu_times() for name, daemon in daemons.items()}
    return {
        name: (
            (now.user + now.system - before[name].user - before[name].system) / seconds,
            (
                now.children_user + now.children_system
                - before[name].children_user - before[name].children_system
            ) / seconds,
        )
        for name, now in after.items()
    }  # fmt: skip


def main() -> int:
    """Print both tables; 1 where a goal is missed."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("rounds", nargs="?", type=int, default=20)
    arguments.add_argument("--loops", type=int, default=1)
    args = arguments.parse_args()
    py_spy = find_py_spy()
    if py_spy is None:
        print("py-spy is not installed: pip install -e '.[stacks]'")
        return 0
    with tempfile.TemporaryDirectory() as name, ExitStack() as open_until_end:
        folder = Path(name)
        library = build_fake(folder / "driver").parent
        fake = open_until_end.enter_context(FakeNvml(folder / "control"))
        fake.wave(0, period_s=PERIOD_S, busy_ratio=BUSY_RATIO)
        loops = [Loop(folder, number) for number in range(args.loops)]
        for loop in loops:
            open_until_end.callback(loop.process.wait)
            open_until_end.callback(loop.process.kill)
        pid = loops[0].process.pid
        fake.run(0, pid)
        environ = fake_env(fake.path, library)
        long_s = str(round(args.rounds * 4 * STRETCH_S + 60))
        tools: dict[str, list[str]] = {
            "nothing": [],
            "gpumon why": [sys.executable, "-m", "gpumon", "why", str(pid), "--for", long_s],
            "gpumon serve": serve(folder / "without"),
            "gpumon serve --stacks": serve(folder / "with", "--stacks"),
            "py-spy record": [
                str(py_spy), "record", "--nonblocking", "--pid", str(pid), "--rate", "100",
                "--duration", long_s, "--output", str(folder / "record.svg"),
            ],
        }  # fmt: skip
        costs = {}
        for tool, words in tools.items():
            with started(words or ["sleep", long_s], environ) as process:
                costs[tool] = cost(process if words else None, loops, args.rounds)
                print(_line(tool, costs[tool]), flush=True)
        daemons = cpu_of_daemons(folder, environ, DAEMON_S)
    for tool, (own, children) in daemons.items():
        print(f"{tool:24}{100 * own:5.2f} % of a core, its children {100 * children:.2f} %")
    share = sum(daemons["serve --stacks"]) - daemons["serve"][0]
    print(f"stack samples           {100 * share:5.2f} %")
    is_met = all(costs[tool].median >= 1 - MOST_LOST for tool in costs if "gpumon" in tool)
    return 0 if is_met and share <= MOST_CPU_RATIO else 1


def _line(tool: str, one: Cost) -> str:
    return (
        f"{tool:24}{100 * one.median:6.2f} % of the steps, +- {100 * one.error:.2f}, "
        f"half of the rounds {100 * one.low:.2f} to {100 * one.high:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
