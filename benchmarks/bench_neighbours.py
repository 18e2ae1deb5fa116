"""What do gpustat, nvitop and gpumon show of the same minute of two GPUs?

    python -m benchmarks.bench_neighbours [SECONDS]

Two fake GPUs repeatedly work for 0.48 s and wait for 0.52 s, as GPUs with a slow input do; the
second is half a second behind the first. gpustat and nvitop run once a second, as users keep them
open; gpumon records the same minute and reports on it. All read one driver at the same time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml

GPUS: Final = 2
PERIOD_S: Final = 1.0
BUSY_RATIO: Final = 0.48
_NVITOP_UTILIZATION: Final = re.compile(r"(\d+)%\s+Default")

Reading = list[int]
"""The utilisation of each GPU, in percent."""


def of_gpustat(text: str) -> Reading:
    """What ``gpustat --json`` says."""
    return [gpu["utilization.gpu"] for gpu in json.loads(text)["gpus"]]


def of_nvitop(text: str) -> Reading:
    """What ``nvitop --once`` says."""
    return [int(percent) for percent in _NVITOP_UTILIZATION.findall(text)]


TOOLS: Final[dict[str, tuple[list[str], Callable[[str], Reading]]]] = {
    "gpustat": (["gpustat", "--json"], of_gpustat),
    "nvitop": (["nvitop", "--once"], of_nvitop),
}


def ask(tool: str, environ: dict[str, str], seconds: int) -> list[Reading]:
    """Start a tool once a second, and keep what it says."""
    words, reading_of = TOOLS[tool]
    began_s = time.monotonic()
    readings = []
    for second in range(1, seconds + 1):
        time.sleep(max(0.0, began_s + second - time.monotonic()))
        done = subprocess.run(
            [sys.executable, "-m", *words], env=environ, capture_output=True, text=True, check=True
        )
        readings.append(reading_of(done.stdout))
    return readings


def record(path: Path, environ: dict[str, str], seconds: int) -> list[dict[str, float]]:
    """The same time as gpumon reports it: a document for each GPU."""
    gpumon = [sys.executable, "-m", "gpumon"]
    subprocess.run(
        [*gpumon, "record", str(path), "--for", f"{seconds}s"],
        env=environ, stdout=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    reported = subprocess.run(
        [*gpumon, "report", str(path), "--json"], capture_output=True, text=True, check=True
    )
    gpus: list[dict[str, float]] = json.loads(reported.stdout)["gpus"]
    return gpus


def in_words(readings: list[int]) -> str:
    """The value shown most, and how often."""
    ((value, count),) = Counter(readings).most_common(1)
    return f"{value} % in {count} of {len(readings)} readings"


def main() -> int:
    """Print the table; 1 where gpumon is more than a point from the truth."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_fake(folder).parent
        with FakeNvml(folder / "control", gpus=GPUS) as fake, ThreadPoolExecutor() as threads:
            for slot in range(GPUS):
                fake.wave(slot, period_s=PERIOD_S, busy_ratio=BUSY_RATIO, phase_s=slot / GPUS)
            environ = fake_env(fake.path, library)
            recorded = threads.submit(record, folder / "minute.gpumon", environ, seconds)
            asked = {tool: threads.submit(ask, tool, environ, seconds) for tool in TOOLS}
            rows = {
                tool: [in_words([*shown]) for shown in zip(*reported.result(), strict=True)]
                for tool, reported in asked.items()
            }
            gpus = recorded.result()
    busy = [gpu["busy_seconds"] / gpu["observed_seconds"] for gpu in gpus]
    lost = [gpu["suspected_seconds"] / gpu["observed_seconds"] for gpu in gpus]
    rows["gpumon"] = [
        f"{100 * works:.0f} % busy, {100 * waits:.0f} % lost"
        for works, waits in zip(busy, lost, strict=True)
    ]
    print(f"{'':9}{'GPU 0':28}GPU 1, which does the same half a second later")
    print(f"{'truth':9}{100 * BUSY_RATIO:.0f} % busy, {100 * (1 - BUSY_RATIO):.0f} % waiting")
    for tool, cells in rows.items():
        print(f"{tool:9}{cells[0]:28}{cells[1]}")
    return 0 if all(abs(ratio - BUSY_RATIO) < 0.01 for ratio in busy) else 1


if __name__ == "__main__":
    sys.exit(main())
