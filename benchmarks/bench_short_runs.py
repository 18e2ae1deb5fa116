"""Does the memory of ``gpumon serve`` stay the same while training runs come and go?

    python -m benchmarks.bench_short_runs [MINUTES]

A real daemon reads eight GPUs of the fake libnvidia-ml.so.1 once a second, and is scraped every
fifteen. Four training runs run at a time, each in a process of its own, under a name of its own: it
tags its steps for seven seconds and ends, and the next one begins on another GPU. In 20 minutes
these are about 650. From the sixth minute on, resident memory must grow by less than 1 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.bench_serve import cost_of, free_port, memory_folder, start
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

GPUS: Final = 8
AT_A_TIME: Final = 4
RUN_S: Final = 7.0
WARM_UP_S: Final = 300.0
SCRAPE_EVERY_S: Final = 15.0
ROW_EVERY_S: Final = 10.0
GOAL_KIB: Final = 1024.0

_TRAINING: Final = """
import sys, time
from trainer_hooks import phase, step, timed
end_s = time.monotonic() + float(sys.argv[1])
def batches():
    while time.monotonic() < end_s:
        time.sleep(0.02)
        yield None
for batch in timed(batches()):
    with phase("train_step"):
        time.sleep(0.03)
    step(samples=32)
"""


class TrainingRuns:
    """Short training runs, so many at a time, each on a GPU that was free."""

    def __init__(self, fake: FakeNvml, environ: dict[str, str]) -> None:
        self._fake, self._environ = fake, environ
        self._running: dict[int, subprocess.Popen[bytes]] = {}  # by GPU
        self._next_gpu = 0
        self.count = 0
        for slot in range(GPUS):
            fake.wave(slot, period_s=1.0, busy_ratio=0.0)

    def keep_going(self) -> None:
        """Let go of those that have ended, and start others in their place."""
        ended = [slot for slot, process in self._running.items() if process.poll() is not None]
        for slot in ended:
            del self._running[slot]
            self._fake.wave(slot, period_s=1.0, busy_ratio=0.0)
        begun = [self._start() for _ in range(AT_A_TIME - len(self._running))]
        if ended or begun:
            self._fake.control.process_count = 0
            for slot, process in self._running.items():
                self._fake.run(slot, process.pid)

    def close(self) -> None:
        """End those that still run."""
        for process in self._running.values():
            process.kill()
            process.wait(10)

    def _start(self) -> None:
        while self._next_gpu in self._running:
            self._next_gpu = (self._next_gpu + 1) % GPUS
        slot, self._next_gpu = self._next_gpu, (self._next_gpu + 1) % GPUS
        self.count += 1
        variables = {"GPUMON_RUN": f"run-{self.count}", "GPUMON_GPUS": str(slot)}
        words = [sys.executable, "-c", _TRAINING, str(RUN_S)]
        self._running[slot] = subprocess.Popen(words, env={**self._environ, **variables})
        self._fake.wave(slot, period_s=0.05, busy_ratio=0.6)


def watch(
    daemon: subprocess.Popen[bytes], port: int, training_runs: TrainingRuns, for_s: float
) -> float:
    """Print a row every ten seconds; by how much memory grew after the warm-up, KiB."""
    began_s = time.monotonic()
    row_due_s = scrape_due_s = 0.0
    first = last = None
    print(f"{'second':>6}{'runs':>6}{'resident KiB':>14}{'grown KiB':>11}", flush=True)
    while (passed_s := time.monotonic() - began_s) < for_s:
        training_runs.keep_going()
        if daemon.poll() is not None:
            raise SystemExit("the daemon has ended")
        if passed_s >= scrape_due_s:
            scrape_due_s += SCRAPE_EVERY_S
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
        if passed_s >= row_due_s:
            row_due_s += ROW_EVERY_S
            last = cost_of(daemon.pid).memory_mib * 1024
            if first is None and passed_s >= WARM_UP_S:
                first = last
            grown = "" if first is None else f"{last - first:.0f}"
            print(f"{passed_s:>6.0f}{training_runs.count:>6}{last:>14.0f}{grown:>11}", flush=True)
        time.sleep(0.1)
    return 0.0 if first is None or last is None else last - first


def main() -> int:
    """Print the rows; 1 where memory grew by more than the goal."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory_folder())))
        library = build_fake(folder)
        fake = stack.enter_context(FakeNvml(folder / "control", gpus=GPUS))
        runtime = {"GPUMON_RUNTIME_DIR": f"{folder}/run", "XDG_STATE_HOME": f"{folder}/state"}
        environ = {**fake_env(fake.path, library.parent), **runtime}
        port = free_port()
        daemon = start(["gpumon", "serve", "--listen", f"127.0.0.1:{port}"], environ)
        stack.callback(daemon.wait, 10)
        stack.callback(daemon.terminate)
        time.sleep(3.0)  # it makes the folder for rings
        training_runs = TrainingRuns(fake, {**os.environ, **runtime})
        stack.callback(training_runs.close)
        grown_kib = watch(daemon, port, training_runs, 60.0 * minutes)
    if 60.0 * minutes <= WARM_UP_S:
        print(f"nothing to compare before second {WARM_UP_S:.0f}")
        return 0
    print(
        f"{training_runs.count} runs in {minutes:g} minutes: {grown_kib:.0f} KiB more than after "
        f"{WARM_UP_S / 60:.0f} minutes (goal: less than {GOAL_KIB:g})"
    )
    return int(grown_kib >= GOAL_KIB)


if __name__ == "__main__":
    sys.exit(main())
