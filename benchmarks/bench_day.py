"""Does memory grow in a day at ten readings a second?

    python -m benchmarks.bench_day [HOURS]

Eight GPUs of the fake libnvidia-ml.so.1, whose clock the benchmark moves, and all that ``gpumon
serve`` does in a tick: source, pipeline, state file, history, metrics, with a scrape a minute and a
training run every five. A day is 864,000 ticks. Until the sixth hour the history fills (64 ended
training runs, 256 reports); then memory must stay.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.bench_serve import memory_folder
from tests.builders.day import day, descriptors, threads
from tests.fakenvml.build import build_fake
from tests.fakenvml.control import FakeNvml

GPUS: Final = 8
PERIOD_S: Final = 0.1
RUN_S: Final = 300.0
HOUR_S: Final = 3600.0
WARM_UP_HOURS: Final = 6
GOAL_KIB_AN_HOUR: Final = 64.0
HEAD: Final = ("hour", "resident KiB", "blocks", "fds", "threads", "us/tick")


def resident_kib() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def main() -> int:
    """Print an hour a row; 1 where something grows."""
    hours = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    rows: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory(dir=memory_folder()) as text:
        folder = Path(text)
        ctypes.CDLL(str(build_fake(folder)))
        os.environ["FAKENVML_CTL"] = str(folder / "control")
        with FakeNvml(folder / "control", gpus=GPUS) as fake:
            print(f"{HEAD[0]:>4}{HEAD[1]:>14}{HEAD[2]:>9}{HEAD[3]:>5}{HEAD[4]:>9}{HEAD[5]:>9}")
            with day(fake, folder, period_s=PERIOD_S, run_s=RUN_S) as one:
                for hour in range(1, hours + 1):
                    began_ns, ticks = time.process_time_ns(), one.ticks
                    one.pass_seconds(HOUR_S)
                    tick_us = (time.process_time_ns() - began_ns) / (one.ticks - ticks) / 1000
                    gc.collect()
                    rows.append((resident_kib(), descriptors(), threads()))
                    print(
                        f"{hour:>4}{rows[-1][0]:>14}{sys.getallocatedblocks():>9}"
                        f"{rows[-1][1]:>5}{rows[-1][2]:>9}{tick_us:>9.0f}",
                        flush=True,
                    )
                print(f"{one.ticks:,} ticks")
    if hours <= WARM_UP_HOURS:
        print(f"nothing to compare before hour {WARM_UP_HOURS}")
        return 0
    first, last = rows[WARM_UP_HOURS - 1], rows[-1]
    slope = (last[0] - first[0]) / (hours - WARM_UP_HOURS)
    print(f"{slope:.1f} KiB an hour since hour {WARM_UP_HOURS} (goal: {GOAL_KIB_AN_HOUR:g})")
    return int(slope > GOAL_KIB_AN_HOUR or last[1:] != first[1:])


if __name__ == "__main__":
    sys.exit(main())
