"""GPU time by run in the scrapes of a real daemon: it adds up, and is that of the loops."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.daemon import RunningDaemon
from tests.imported_later import ImportedLater
from tests.training_processes import process

parser: Any = ImportedLater("prometheus_client.parser")

GPU, RUN = "gpumon_gpu", "gpumon_training_gpu"
WATCHED_S: Final = 6.0
LOOP = """
import os, sys, time
from pathlib import Path
from trainer_hooks import phase, step
from trainer_hooks.examples.busy_spans import BusySpans
spans, gpu, wait_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
print("there", flush=True)
with BusySpans(Path(spans), gpu) as device:
    while True:
        with phase("input_wait"):
            time.sleep(wait_s)
        with phase("train_step"):
            device.sleep(0.1)
        step()
"""


def scraped(daemon: RunningDaemon) -> dict[str, dict[tuple[str, ...], float]]:
    """Busy and idle seconds of GPUs and runs, by family and labels."""
    status, text = daemon.get("/metrics")
    assert status == 200
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        if family.name.startswith((f"{GPU}_busy", f"{GPU}_idle_s", f"{RUN}_busy", f"{RUN}_idle")):
            found[family.name] = {
                (one.labels.get("uuid") or one.labels.get("run", ""), one.labels.get("cause", "")):
                one.value
                for one in family.samples
            }  # fmt: skip
    return found


def sums(found: dict[str, dict[tuple[str, ...], float]], whose: str) -> Counter[str]:
    """Seconds by cause; of no cause: busy."""
    total: Counter[str] = Counter()
    for kind in ("busy", "idle"):
        for (_, cause), amount_s in found.get(f"{whose}_{kind}_seconds", {}).items():
            total[cause] += amount_s  # type: ignore[assignment]
    return total


def test_adds_up_in_every_scrape_and_is_that_of_the_loops(tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    spans.write_text("".join(f'{{"gpu": {gpu}, "start_ns": 1, "end_ns": 2}}\n' for gpu in (0, 1)))
    source = ("--source", f"follow:{spans}", "--period", "0.25")
    with RunningDaemon(tmp_path, *source) as daemon:
        named = {"GPUMON_RUN": "half", "GPUMON_GPUS": "0"}
        busy = {"GPUMON_RUN": "full", "GPUMON_GPUS": "1"}
        with process(LOOP, daemon.runtime_dir, str(spans), "0", "0.1", environ=named):
            with process(LOOP, daemon.runtime_dir, str(spans), "1", "0", environ=busy):
                until_s = time.monotonic() + WATCHED_S
                seen = [scraped(daemon)]
                while time.monotonic() < until_s:
                    time.sleep(0.1)
                    seen.append(scraped(daemon))
            time.sleep(1.0)  # the second was killed
            seen.append(scraped(daemon))

    for found in seen:
        of_runs, of_gpus = sums(found, RUN), sums(found, GPU)
        for cause in of_runs.keys() | of_gpus.keys():
            assert of_runs[cause] == pytest.approx(of_gpus[cause], abs=1e-9)
    runs_busy, runs_idle = seen[-1][f"{RUN}_busy_seconds"], seen[-1][f"{RUN}_idle_seconds"]
    half_idle_s = runs_idle["half", "input_wait"]
    assert runs_busy["half", ""] / (runs_busy["half", ""] + half_idle_s) == pytest.approx(
        0.5, abs=0.1
    )
    assert runs_busy["full", ""] == pytest.approx(WATCHED_S, abs=2.0)
