"""What does sampling the processes of training runs cost, waiting and idle ones?

    python -m benchmarks.bench_host [SECONDS]

Training runs have 20 threads (three run), workers have three (one runs), all of them real and
waiting. Once a second gpumon samples all of them, in its own thread; psutil reads the threads and
children of the same trees in the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingReading, RingRecords
from gpumon.sources.host.host_reader import HostReader
from tests.builders.monitor import ring_reading
from tests.builders.ring import run_facts
from tests.processes import ending

GOALS: Final = {(4, 8): 0.1, (4, 32): 0.3}
"""Percent of a core at one look a second, by training runs and workers of each."""
_WARM_UP_LOOKS: Final = 6
_TRAINING: Final = """
import subprocess, sys, threading, time
def waits():
    while True:
        time.sleep(0.2)
rests = threading.Event()
for _ in range(16):
    threading.Thread(target=rests.wait, daemon=True).start()
for _ in range(3):
    threading.Thread(target=waits, daemon=True).start()
worker = '''
import threading, time
rests = threading.Event()
for _ in range(2):
    threading.Thread(target=rests.wait, daemon=True).start()
while True:
    time.sleep(0.2)
'''
for _ in range(int(sys.argv[1])):
    subprocess.Popen([sys.executable, "-S", "-c", worker])
print("ready", flush=True)
waits()
"""


@contextmanager
def training_runs(count: int, workers: int) -> Iterator[list[int]]:
    """The pids of training runs with workers."""
    words = [sys.executable, "-S", "-c", _TRAINING, str(workers)]
    with ExitStack() as around:
        started = []
        for _ in range(count):
            process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
            around.enter_context(ending(process))
            around.callback(os.killpg, process.pid, 9)
            assert process.stdout is not None
            process.stdout.readline()
            started.append(process.pid)
        yield started


def readings(pids: Sequence[int], *, waited_ns: int) -> tuple[RingReading, ...]:
    """What their rings say: that they have waited for input for so long."""
    now_ns = time.monotonic_ns()
    waits = RingRecords.of([RingEvent(RingKind.ENTER, now_ns, TrainingPhase.OTHER, 0)])
    return tuple(
        ring_reading(
            replace(run_facts(run=f"run-{pid}"), pid=pid),
            host_pid=pid,
            owner_uid=os.geteuid(),
            read_at_ns=now_ns,
            events=waits,
            phase_ns={TrainingPhase.INPUT_WAIT: waited_ns},
        )
        for pid in pids
    )


def percent_of_a_core(
    look: Callable[[Any], object], seconds: int, value_of: Callable[[int], Any] = int
) -> float:
    """What a look a second costs this thread, once it is warm, but not what ``value_of`` costs."""
    spent_ns = 0
    for second in range(seconds + _WARM_UP_LOOKS):
        news = value_of(second)
        began_ns = time.thread_time_ns()
        look(news)
        spent_ns += (time.thread_time_ns() - began_ns) * (second >= _WARM_UP_LOOKS)
        time.sleep(1.0)
    return spent_ns / seconds / 1e9 * 100


def looked_at(pids: Sequence[int], seconds: int, *, waits: bool) -> float:
    """Gpumon's looks at training runs that wait all the time, or never."""
    reader = HostReader()
    try:
        return percent_of_a_core(
            lambda news: reader.inspect(news, (), time.monotonic_ns()),
            seconds,
            lambda second: readings(pids, waited_ns=second * 10**9 if waits else 0),
        )
    finally:
        reader.close()


def read_by_psutil(pids: Sequence[int]) -> None:
    """The same trees, their threads and how the machine's disks do, by psutil."""
    for pid in pids:
        training = psutil.Process(pid)
        for process in (training, *training.children(recursive=True)):
            process.threads()
    psutil.disk_io_counters(perdisk=True)


def main() -> int:
    """Print the table; 1 where a goal is missed."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    is_met = True
    print(f"{'runs x workers':22}{'all wait':>10}{'none waits':>12}{'psutil':>9}{'goal':>7}")
    for (count, workers), goal in GOALS.items():
        with training_runs(count, workers) as pids:
            time.sleep(1.0 + 0.02 * count * workers)
            waiting = looked_at(pids, seconds, waits=True)
            resting = looked_at(pids, seconds // 2, waits=False)
            peer = percent_of_a_core(lambda _, pids=pids: read_by_psutil(pids), 3)  # type: ignore[misc]
        is_met = is_met and waiting <= goal
        print(
            f"{f'{count} x {workers}':22}{waiting:9.3f}%{resting:11.3f}%{peer:8.2f}%{goal:6.1f}%",
            flush=True,
        )
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    print(f"of a core, at one look a second; load {load}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
