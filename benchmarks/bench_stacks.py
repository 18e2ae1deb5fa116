"""What do stack samples cost the training run, and the daemon that takes them?

    python -m benchmarks.bench_stacks [ROUNDS] [--loops N]

A training loop that only computes runs beside ``gpumon why``, beside ``gpumon serve --stacks`` and
beside ``py-spy record``, which samples a hundred times a second. In each round one of them works
for three seconds and is stopped (SIGSTOP) for three seconds, in changing order; the ratio of the
loop's steps in both is the figure, and *nothing* is how far two such stretches differ anyway. On a
busy machine steps a second differ by tens of percent from one stretch to the next; steps in a
second of the loop's own CPU time do not, and show what a reader of its memory costs it. The fake
GPU is busy every other second, whatever the loop does, so that each tool samples at its usual
times. ``--loops`` runs several loops; with one for each core, all that a tool takes is theirs.

Then they run at the same time for a minute: CPU in percent of a core, and that of py-spy.
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
CPU_FOR_S: Final = 60.0
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

    @property
    def cpu_s(self) -> float:
        """CPU time of its only thread, to the nanosecond."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9


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


class Rate(NamedTuple):
    """Steps of all loops, in a second of time and in one of their CPU time."""

    per_second: float
    per_cpu_second: float


def rate(loops: Sequence[Loop]) -> Rate:
    """How fast the loops are now."""
    began_s = time.monotonic()
    steps, cpu_s = sum(loop.steps for loop in loops), sum(loop.cpu_s for loop in loops)
    time.sleep(STRETCH_S)
    steps = sum(loop.steps for loop in loops) - steps
    cpu_s = sum(loop.cpu_s for loop in loops) - cpu_s
    return Rate(steps / (time.monotonic() - began_s), steps / cpu_s)


def costs(tool: subprocess.Popen[bytes] | None, loops: Sequence[Loop], rounds: int) -> list[Cost]:
    """Let the tool work and rest in turn; by time, and by CPU time."""
    ratios = []
    for number in range(rounds):
        rates = {}
        for works in (True, False) if number % 2 else (False, True):
            if tool is not None:
                assert tool.poll() is None, "it ended early"
                os.kill(tool.pid, signal.SIGCONT if works else signal.SIGSTOP)
            rates[works] = rate(loops)
        ratios.append([one / other for one, other in zip(rates[True], rates[False], strict=True)])
    if tool is not None:
        os.kill(tool.pid, signal.SIGCONT)
    return [_cost(column) for column in zip(*ratios, strict=True)]


def _cost(ratios: Sequence[float]) -> Cost:
    low, _, high = statistics.quantiles(ratios, n=4)
    error = statistics.stdev(ratios) / math.sqrt(len(ratios))
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
        "--no-store", "--listen", "127.0.0.1:0", *more,
    ]  # fmt: skip


def cpu_of(
    tools: Mapping[str, Sequence[str]], environ: Mapping[str, str], seconds: float
) -> dict[str, tuple[float, float]]:
    """CPU of tools that run at the same time, and of their children, as shares of a core."""
    with ExitStack() as open_until_end:
        running = {
            name: psutil.Process(open_until_end.enter_context(started(words, environ)).pid)
            for name, words in tools.items()
        }
        before = {name: _spent(one) for name, one in running.items()}
        time.sleep(seconds)
        after = {name: _spent(one) for name, one in running.items()}
    return {
        name: ((own - before[name][0]) / seconds, (children - before[name][1]) / seconds)
        for name, (own, children) in after.items()
    }


def _spent(process: psutil.Process) -> tuple[float, float]:
    times = process.cpu_times()
    return times.user + times.system, times.children_user + times.children_system


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
        long_s = str(round(args.rounds * 4 * STRETCH_S + 120))
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
        found = {}
        for tool, words in tools.items():
            with started(words or ["sleep", long_s], environ) as process:
                found[tool] = costs(process if words else None, loops, args.rounds)
                for unit, one in zip(("s", "CPU s"), found[tool], strict=True):
                    print(_line(tool, unit, one), flush=True)
        ours = {name: words for name, words in tools.items() if "gpumon" in name}
        spent = cpu_of(ours, environ, CPU_FOR_S)
    for tool, (own, children) in spent.items():
        print(f"{tool:24}{100 * own:5.2f} % of a core, py-spy {100 * children:.2f} %")
    share = sum(spent["gpumon serve --stacks"]) - spent["gpumon serve"][0]
    print(f"--stacks                {100 * share:5.2f} % of a core more than without")
    is_met = all(found[tool][1].median >= 1 - MOST_LOST for tool in found if "gpumon" in tool)
    return 0 if is_met and share <= MOST_CPU_RATIO else 1


def _line(tool: str, unit: str, one: Cost) -> str:
    return (
        f"{tool:24}{100 * one.median:6.2f} % of the steps a {unit:6}+- {100 * one.error:.2f}, "
        f"half of the rounds {100 * one.low:.2f} to {100 * one.high:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
