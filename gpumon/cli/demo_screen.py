"""What ``gpumon demo`` shows while it runs: a bar and a line that is renewed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gpumon.core.report import Report
from gpumon.core.units import seconds

_LINE_EVERY_S = 5.0
_WITH_BARS = 125
"""Columns from which a terminal has room for the whole title, the bar and the clock, too."""


class DemoScreen:
    """A progress bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._live = sys.stdout.isatty()
        self._console = Console(highlight=False)
        self._wide = self._console.width >= _WITH_BARS
        said = TextColumn("step {task.completed:.0f}/{task.total:.0f}  {task.fields[now]}")
        title = TextColumn("  {task.description}")
        columns = (title, BarColumn(bar_width=20), said, TimeElapsedColumn())
        self._progress = Progress(
            *(columns if self._wide else (title, said)), console=self._console
        )
        self._task = TaskID(0)
        self._title, self._steps = "", 0
        self._before: dict[str, Any] | None = None
        self._said_at_s = 0.0

    def __enter__(self) -> DemoScreen:
        self._console.print(
            "gpumon demo: a real training on a [bold]simulated GPU[/bold] "
            "(busy while the compute runs)\n"
            f"live page: http://{self._address}/\n"
        )
        if self._live:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave what is on the screen."""
        self._progress.stop()

    def begin(self, title: str, run: str, steps: int) -> None:
        """A training begins."""
        self._title, self._steps, self._before = title, steps, None
        name = f"{title:<29}" if self._wide else f"{run:<10}"
        self._task = self._progress.add_task(name, total=steps, now="starting")

    def look(self, state_file: Path, run: str) -> None:
        """Renew the line from the daemon's state file, as ``dstat`` would."""
        try:
            document = json.loads(state_file.read_bytes())
        except (OSError, ValueError):
            return
        if not document["gpus"]:
            return
        steps = next((one["steps"] for one in document["runs"] if one["run"] == run), 0)
        phase = next((one["phase"] for one in document["runs"] if one["run"] == run), None)
        now = self._rates(document["gpus"][0])
        if phase is not None:
            now += f"  now: {phase}"
        self._progress.update(self._task, completed=steps, now=now)
        if not self._live and time.monotonic() - self._said_at_s >= _LINE_EVERY_S:
            self._said_at_s = time.monotonic()
            print(f"  {self._title}: step {steps}/{self._steps}  {now}", flush=True)

    def say_truth(self, title: str, report: Report, result: dict[str, float]) -> None:
        """A training is over: hold what gpumon saw against what the compute noted."""
        self._progress.update(self._task, completed=self._steps, now="done")
        seen_s = sum(seconds(gpu.totals.busy_ns) for gpu in report.gpus)
        self._console.print(
            f"  {title}: {result['steps']:.0f} steps in {result['wall_seconds']:.1f} s; "
            f"GPU busy {result['busy_seconds']:.2f} s by the compute's own clock, "
            f"{seen_s:.2f} s by gpumon"
        )

    def _rates(self, gpu: dict[str, Any]) -> str:
        before, self._before = self._before or gpu, gpu
        observed_ns = gpu["observed_ns"] - before["observed_ns"]
        if observed_ns <= 0:
            return "GPU: waiting for samples" if before is gpu else self._last
        busy = 100 * (gpu["busy_ns"] - before["busy_ns"]) / observed_ns
        lost_ns = sum(gpu[name] - before[name] for name in ("starved_ns", "suspected_ns"))
        self._last = f"GPU busy {busy:3.0f} %, starved {100 * lost_ns / observed_ns:3.0f} %"
        return self._last

    _last = "GPU: waiting for samples"
