"""How fast is a long log read, and does memory stay flat?

Writes a log of N rows (default 1,000,000: twelve days at 1 s), analyses it in
a fresh process, and compares with a bare loop that only splits the same lines
and converts their utilisation: the cost of gpumon is the ratio.

    python benchmarks/bench_analyze_throughput.py [ROWS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

DEFAULT_ROWS = 1_000_000
GOAL = "goal: 4,000,000 rows within 30 s and 200 MiB"

BARE_LOOP = """
import sys
total = 0
with open(sys.argv[1]) as stream:
    next(stream)
    for line in stream:
        total += int(line.split(",")[3].removesuffix(" %"))
"""
ANALYSIS = """
import sys
from gpumon.cli.main import main
sys.exit(main(["analyze", "--json", sys.argv[1]]))
"""


def write_log(path: Path, rows: int) -> None:
    """Bursts of 7 s and pauses of 3 s, with a jitter of the stamps as nvidia-smi has it."""
    stamp = datetime(2025, 6, 13)
    with path.open("w", encoding="utf-8") as stream:
        stream.write("timestamp, index, name, utilization.gpu [%], memory.used [MiB]\n")
        for row in range(rows):
            stamp += timedelta(milliseconds=1_000 + (row % 3))
            busy = 97 - row % 5 if row % 10 < 7 else 0
            text = f"{stamp:%Y/%m/%d %H:%M:%S}.{stamp.microsecond // 1000:03d}"
            stream.write(f"{text}, 0, NVIDIA A40, {busy} %, 1830 MiB\n")


def measured(script: str, path: Path) -> tuple[float, float]:
    """Wall seconds and peak MiB of a fresh interpreter that runs the script on the log."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"the measured process ended with status {status}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> int:
    """Print one comparison."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.csv"
        write_log(path, rows)
        bare_s, bare_mib = measured(BARE_LOOP, path)
        ours_s, ours_mib = measured(ANALYSIS, path)
    print(f"{rows:,} rows")
    print(f"bare loop       {bare_s:6.2f} s  {rows / bare_s:>12,.0f} rows/s  {bare_mib:6.1f} MiB")
    print(f"gpumon analyze  {ours_s:6.2f} s  {rows / ours_s:>12,.0f} rows/s  {ours_mib:6.1f} MiB")
    print(f"ratio           {ours_s / bare_s:6.1f}")
    print(f"{GOAL}; at this pace 4,000,000 rows take {ours_s * 4e6 / rows:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
