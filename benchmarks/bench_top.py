"""How soon does ``gpumon top`` show the GPUs, and what does it cost, next to nvitop?

    python -m benchmarks.bench_top [SECONDS] [--gpus N]

Both run at the same time, once a second, each on a terminal of 160 x 50 and on the same fake
libnvidia-ml.so.1: gpumon beside its daemon, and once more without one, when it watches the GPUs
itself. CPU is that of the process alone. The first screen is there once the terminal shows the
row of a GPU; the median of five starts counts.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.bench_serve import cost_of
from tests.daemon import RunningDaemon
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

GOAL_S: Final = 0.5
GOAL_RATIO: Final = 0.02
STARTS: Final = 5
WARM_UP_S: Final = 5.0
_ROWS, _COLUMNS = 50, 160
_ESCAPE: Final = re.compile(rb"\x1b(?:\[[0-9;?:>]*[A-Za-z]|\(B)")
GPUMON, ALONE, NVITOP = "gpumon top", "gpumon top, without a daemon", "nvitop"


class OnTerminal:
    """A program on a terminal of its own, whose output is read at once. Ends when left."""

    def __init__(self, words: list[str], environ: Mapping[str, str]) -> None:
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self._written = bytearray()
        self._began_s = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        )  # fmt: skip
        os.close(terminal)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)
        os.close(self._controller)

    @property
    def cpu_s(self) -> float:
        return cost_of(self._process.pid).cpu_s

    @property
    def memory_mib(self) -> float:
        return cost_of(self._process.pid).memory_mib

    def shown_after_s(self, pattern: bytes) -> float:
        """Seconds from its start to when this is on the terminal."""
        while not re.search(pattern, _ESCAPE.sub(b"", bytes(self._written))):
            if time.perf_counter() - self._began_s > 30 or self._process.poll() is not None:
                raise TimeoutError(bytes(self._written)[-2_000:])
            time.sleep(0.002)
        return time.perf_counter() - self._began_s

    def _read(self) -> None:
        with suppress(OSError):  # it has ended
            while True:
                self._written += os.read(self._controller, 65_536)


def started(name: str, environ: Mapping[str, str], elsewhere: Path) -> OnTerminal:
    """One of the tools."""
    if name == NVITOP:
        return OnTerminal(["nvitop", "--monitor", "full", "--interval", "1"], environ)
    alone = {**environ, "GPUMON_RUNTIME_DIR": str(elsewhere)}
    return OnTerminal(["gpumon", "top"], alone if name == ALONE else environ)


FIRST: Final = {GPUMON: rb"GPU 0 ", ALONE: rb"GPU 0 ", NVITOP: rb"H100 80GB HBM3"}


def main() -> int:
    """Measure all three, and compare gpumon with its goals."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("seconds", nargs="?", type=float, default=30.0)
    parser.add_argument("--gpus", type=int, default=16)
    args = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_fake(folder)
        fake = FakeNvml(folder / "control", gpus=args.gpus)
        for slot in range(args.gpus):
            fake.wave(slot, period_s=1.0 + 0.1 * slot, busy_ratio=0.7)
            fake.run(slot, os.getpid())
        environ = fake_env(fake.path, library.parent)
        with RunningDaemon(folder, environ=environ) as daemon:
            print(f"{args.gpus} GPUs, {args.seconds:g} s at one tick a second")
            print(f"{'':32}{'first screen':>14}{'of a core':>12}{'memory':>10}")
            firsts = {tool: [] for tool in FIRST}
            for _ in range(STARTS):
                for tool, pattern in FIRST.items():
                    with started(tool, daemon.environ, folder / "elsewhere") as running:
                        firsts[tool].append(running.shown_after_s(pattern))
            tools = {tool: started(tool, daemon.environ, folder / "elsewhere") for tool in FIRST}
            time.sleep(WARM_UP_S)
            before = {tool: running.cpu_s for tool, running in tools.items()}
            time.sleep(args.seconds)
            for tool, running in tools.items():
                ratio = (running.cpu_s - before[tool]) / args.seconds
                first_s = median(firsts[tool])
                memory = f"{running.memory_mib:.0f} MiB"
                print(f"{tool:32}{first_s:12.2f} s{100 * ratio:10.2f} %{memory:>10}")
                if tool == GPUMON:
                    missed = first_s > GOAL_S or ratio > GOAL_RATIO
                running.__exit__()
        fake.close()
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
