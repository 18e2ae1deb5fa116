"""How fast is a long log read, and does memory stay flat?

Writes logs of N rows (default 1,000,000: twelve days of one GPU at 1 s) with one GPU, with eight,
with eight whose power and memory differ in each row, and with one in gzip; analyses each in a new
process, and compares with minimal loops: one splits the lines and converts their utilisation,
another uses the standard library's csv module, and pandas reads the file and parses its time
(skipped if not installed: it is in the extra `bench`; or name an interpreter that has it). The cost
of gpumon is the ratio.

    python -m benchmarks.bench_analyze_throughput [ROWS] [PYTHON_WITH_PANDAS]
"""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TextIO

DEFAULT_ROWS: Final = 1_000_000
GOAL_ROWS: Final = 4_000_000
GOAL_S, GOAL_MIB = 15.0, 200.0
GOAL: Final = "goal: 4,000,000 rows within 15 s and 200 MiB"

OPENED: Final = """
import gzip, sys
path = sys.argv[1]
opened = gzip.open if path.endswith(".gz") else open
total = 0
"""
BARE_LOOP: Final = (
    OPENED
    + """
with opened(path, "rt") as stream:
    next(stream)
    for line in stream:
        total += int(line.split(",")[3].removesuffix(" %"))
"""
)
CSV_LOOP: Final = (
    OPENED
    + """
import csv
with opened(path, "rt", newline="") as stream:
    rows = csv.reader(stream, skipinitialspace=True)
    next(rows)
    for row in rows:
        total += int(row[3].removesuffix(" %"))
"""
)
PANDAS_READ: Final = """
import sys
import pandas
rows = pandas.read_csv(sys.argv[1], skipinitialspace=True)
rows["timestamp"] = pandas.to_datetime(rows["timestamp"], format="%Y/%m/%d %H:%M:%S.%f")
rows["utilization.gpu [%]"].str.removesuffix(" %").astype(int).sum()
"""
ANALYSIS: Final = """
import sys
from gpumon.cli.main import main
sys.exit(main(["analyze", "--json", sys.argv[1]]))
"""


def write_log(path: Path, rows: int, gpus: int = 1, *, varies: bool = False) -> None:
    """Bursts of 7 s and pauses of 3 s, with a jitter of the stamps as nvidia-smi has it.

    Args:
        path: Where to write it; packed where its name says so.
        rows: How many, of all GPUs.
        gpus: How many GPUs.
        varies: Whether memory and power differ in each row.
    """
    stamp, noise = datetime(2025, 6, 13), random.Random(1)
    with opened(path) as stream:
        power = ", power.draw [W]" if varies else ""
        stream.write(f"timestamp, index, name, utilization.gpu [%], memory.used [MiB]{power}\n")
        for row in range(rows // gpus):
            stamp += timedelta(milliseconds=1_000 + (row % 3))
            for gpu in range(gpus):
                busy = 97 - row % 5 if (row + gpu) % 10 < 7 else 0
                text = f"{stamp:%Y/%m/%d %H:%M:%S}.{stamp.microsecond // 1000:03d}"
                rest = "1830 MiB"
                if varies:
                    rest = f"{noise.randrange(38_000, 40_000)} MiB, {noise.uniform(60, 300):.2f} W"
                stream.write(f"{text}, {gpu}, NVIDIA A40, {busy} %, {rest}\n")


def opened(path: Path) -> TextIO:
    """The file to write to, packed where its name says so."""
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8")
    return path.open("w", encoding="utf-8")


def measured(script: str, path: Path, python: str = sys.executable) -> tuple[float, float, float]:
    """Wall and processor seconds, and peak MiB, of a fresh interpreter running the script.

    The memory is that of the larger process, where it starts a second one.
    """
    began = time.perf_counter()
    process = subprocess.Popen([python, "-c", script, str(path)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"the measured process ended with status {status}")
    wall_s = time.perf_counter() - began
    return wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


LOGS: Final[dict[str, tuple[str, Callable[[Path, int], None]]]] = {
    "one GPU": ("one.csv", write_log),
    "eight GPUs": ("eight.csv", lambda path, rows: write_log(path, rows, gpus=8)),
    "eight GPUs, memory and power differ": (
        "varied.csv",
        lambda path, rows: write_log(path, rows, gpus=8, varies=True),
    ),
    "gzip": ("one.csv.gz", write_log),
}
PANDAS: Final = "pandas"
LOOPS: Final = {
    "bare loop": BARE_LOOP,
    "csv module": CSV_LOOP,
    PANDAS: PANDAS_READ,
    "gpumon analyze": ANALYSIS,
}


def main() -> int:
    """Print one comparison for each log."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_ROWS
    peer = sys.argv[2] if len(sys.argv) > 2 else sys.executable
    has_pandas = subprocess.run([peer, "-c", "import pandas"], capture_output=True).returncode == 0
    if not has_pandas:
        print(f"pandas is left out: {peer} has none (pip install pandas, or name one that has)")
    slowest_s = most_mib = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for title, (name, write) in LOGS.items():
            path = Path(folder) / name
            write(path, rows)
            print(f"{title}: {rows:,} rows")
            floor_s = 0.0
            for loop, script in LOOPS.items():
                if loop == PANDAS and not has_pandas:
                    continue
                python = peer if loop == PANDAS else sys.executable
                took_s, processor_s, mib = measured(script, path, python)
                floor_s = floor_s or processor_s
                print(
                    f"  {loop:<15} {took_s:6.2f} s  {rows / took_s:>10,.0f} rows/s"
                    f"  {processor_s:6.2f} s of a core  {processor_s / floor_s:5.1f} x"
                    f"  {mib:6.1f} MiB"
                )
            slowest_s, most_mib = max(slowest_s, took_s), max(most_mib, mib)
            path.unlink()
    print(
        f"{GOAL}; at the slowest pace {GOAL_ROWS:,} rows take {slowest_s * GOAL_ROWS / rows:.1f} s"
        f" and {most_mib:.1f} MiB"
    )
    is_met = slowest_s * GOAL_ROWS / rows <= GOAL_S and most_mib <= GOAL_MIB
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
