"""``gpumon demo``: a real training run with slow input, then the same with prefetch."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess  # starts a daemon and two training runs
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from gpumon.cli.command import end_on_signals, number_argument
from gpumon.core.clock import seconds
from gpumon.core.diagnosis.report_since import report_since
from gpumon.core.report.report import Report
from gpumon.core.ring_format.runtime_paths import RUNTIME_VARIABLE, STATE_FILE
from gpumon.errors import GpumonError
from gpumon.outlets.http.server import DEFAULT_LISTEN, parse_listen
from gpumon.outlets.text.comparison import side_by_side
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import style_for
from gpumon.pipeline.history import later
from gpumon.sources.daemon import fetch_report

_LOOK_EVERY_S = 0.5
_LINE_EVERY_S = 5.0
_DAEMON_PATIENCE_S = 15.0
_SETTLE_PATIENCE_S = 6.0
_NO_SAMPLES = "GPU: waiting for samples"
_WITH_BARS = 125
"""Columns a terminal needs for full title, bar and clock."""


class DemoScreen:
    """A progress bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._live = sys.stdout.isatty()
        self._console = Console(highlight=False)
        self._wide = self._console.width >= _WITH_BARS
        status = TextColumn("step {task.completed:.0f}/{task.total:.0f}  {task.fields[now]}")
        title = TextColumn("  {task.description}")
        columns = (title, BarColumn(bar_width=20), status, TimeElapsedColumn())
        self._progress = Progress(
            *(columns if self._wide else (title, status)), console=self._console
        )
        self._task = TaskID(0)
        self._title, self._steps = "", 0
        self._before: dict[str, Any] | None = None
        self._last_rates = _NO_SAMPLES
        self._printed_at_s = 0.0

    def __enter__(self) -> DemoScreen:
        self._console.print(
            "gpumon demo: a real training run on a [bold]simulated GPU[/bold] "
            "(busy while the compute runs)\n"
            f"live page: http://{self._address}/\n"
        )
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, title: str, run: str, steps: int) -> None:
        self._title, self._steps, self._before = title, steps, None
        name = f"{title:<29}" if self._wide else f"{run:<10}"
        self._task = self._progress.add_task(name, total=steps, now="starting")

    def update(self, state_file: Path, run: str) -> None:
        """Update the line from the daemon's state file, as ``dstat`` would."""
        try:
            document = json.loads(state_file.read_bytes())
        except (OSError, ValueError):
            return
        if not document["gpus"]:
            return
        found: dict[str, Any] = next(
            (entry for entry in document["runs"] if entry["run"] == run), {}
        )
        steps, phase = found.get("steps", 0), found.get("phase")
        now = self._rates(document["gpus"][0])
        if phase is not None:
            now += f"  now: {phase}"
        self._progress.update(self._task, completed=steps, now=now)
        if not self._live and time.monotonic() - self._printed_at_s >= _LINE_EVERY_S:
            self._printed_at_s = time.monotonic()
            print(f"  {self._title}: step {steps}/{self._steps}  {now}", flush=True)

    def end(self, title: str, report: Report, result: dict[str, float]) -> None:
        """Compare what gpumon measured with what the compute recorded."""
        self._progress.update(self._task, completed=self._steps, now="done")
        measured_s = sum(seconds(gpu.totals.busy_ns) for gpu in report.gpus)
        self._console.print(
            f"  {title}: {result['steps']:.0f} steps in {result['wall_seconds']:.1f} s; "
            f"GPU busy {result['busy_seconds']:.2f} s by the compute's own clock, "
            f"{measured_s:.2f} s by gpumon"
        )

    def _rates(self, gpu: dict[str, Any]) -> str:
        before, self._before = self._before or gpu, gpu
        observed_ns = gpu["observed_ns"] - before["observed_ns"]
        if observed_ns <= 0:
            return _NO_SAMPLES if before is gpu else self._last_rates
        busy = 100 * (gpu["busy_ns"] - before["busy_ns"]) / observed_ns
        lost_ns = sum(gpu[name] - before[name] for name in ("starved_ns", "suspected_ns"))
        self._last_rates = f"GPU busy {busy:3.0f} %, starved {100 * lost_ns / observed_ns:3.0f} %"
        return self._last_rates


class Stage(NamedTuple):
    """One of the two training runs, with the number of threads that read ahead."""

    title: str
    run: str
    workers: int


_STAGES = (
    Stage(title="slow input, read in the loop", run="slow-input", workers=0),
    Stage(title="the same input, read ahead", run="prefetch", workers=4),
)


class DemoCommand:
    """See gpumon work on a machine without a GPU.

    Starts a daemon and a real training loop that waits for a slow data store,
    then the same loop with prefetch, and prints both reports side by side. The
    loop is plain Python and needs nothing else. The GPU is simulated: its busy
    time is recorded by the loop itself, independently of the hooks that gpumon
    reads. Takes about a minute, a little more if all cores are busy.
    """

    example = "gpumon demo --keep      # keep the page up afterwards"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--keras", action="store_true", help="train with Keras on JAX instead of plain Python"
        )
        parser.add_argument(
            "--keep", action="store_true", help="keep the page up at the end, until Ctrl-C"
        )
        parser.add_argument(
            "--steps",
            type=number_argument(int, "a whole number", 20, 100_000),
            default=300,
            help="training steps of each run (default: 300)",
        )

    def run(self, args: argparse.Namespace) -> int:
        end_on_signals(_interrupt)
        module = _training_module(keras=args.keras)
        style = style_for(sys.stdout, os.environ)
        with _scratch_folder() as folder, _daemon(folder) as address:
            with DemoScreen(address) as screen:
                reports, passes, earlier = [], 0, fetch_report({"address": address})
                for stage in _STAGES:
                    result = _train(folder, module, stage, (args.steps, passes), screen)
                    passes = int(result["passes"])
                    now = _settled_report(address, stage.run)
                    reports.append(_of_one_stage(earlier, now))
                    screen.end(stage.title, reports[-1], result)
                    earlier = now
            for stage, report in zip(_STAGES, reports, strict=True):
                print(f"\n== {stage.title}\n\n{render_report(report, style)}", end="")
            before, after = reports
            both = side_by_side(before, after, style, titles=("slow input", "prefetch"))
            print(f"\n== side by side\n\n{both}")
            print("The GPU was simulated; waiting, reading and computing were real.")
            if args.keep:
                _keep(address)
        return 0


def _interrupt() -> NoReturn:
    """On any signal, end what was started and remove the folder."""
    raise KeyboardInterrupt


def _training_module(*, keras: bool) -> str:
    if not keras:
        return "trainer_hooks.examples.plain_training"
    needed = ("keras", "jax")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise GpumonError(
            f"--keras needs Keras and JAX: run `pip install {' '.join(missing)}`, or leave it out"
        )
    return "trainer_hooks.examples.keras_training"


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="gpumon-demo-")
    except OSError as error:
        raise GpumonError(
            f"the demo cannot create a temporary folder: {error.strerror or error}: set TMPDIR to "
            "a folder that you can write"
        ) from error
    with made as name:
        yield Path(name)


@contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    """Run a daemon that follows the training runs' spans; yields its address."""
    words = ["serve", "--source", f"follow:{folder / 'busy.jsonl'}", "--listen", _free_listen()]
    words.append("--no-store")
    log = (folder / "daemon.log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpumon", *words],
        env=_environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    try:
        yield _address(folder, process, log.name)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        log.close()


def _address(folder: Path, process: subprocess.Popen[bytes], log: str) -> str:
    state_file = _state_file(folder)
    give_up_s = time.monotonic() + _DAEMON_PATIENCE_S
    while time.monotonic() < give_up_s and process.poll() is None:
        if state_file.exists():
            address: str = json.loads(state_file.read_bytes())["address"]
            return address
        time.sleep(0.1)
    raise GpumonError(f"the demo's daemon did not start: {Path(log).read_text().strip()}")


def _state_file(folder: Path) -> Path:
    return folder / "run" / STATE_FILE


def _free_listen() -> str:
    """The default address if it is free: a real daemon may be running."""
    usual = parse_listen(DEFAULT_LISTEN)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(usual)
        except OSError:
            return f"{usual.host}:0"
    return DEFAULT_LISTEN


def _environment(folder: Path) -> dict[str, str]:
    # One thread for arithmetic: the other cores are for the input.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        # Without the options of the user's own daemon.
        **{name: text for name, text in os.environ.items() if not name.startswith("GPUMON_")},
        **threads,
        "TMPDIR": str(folder),  # temporary files of the runs are removed with it
        RUNTIME_VARIABLE: str(_state_file(folder).parent),
        "GPUMON_GPUS": "0",
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
    }


def _train(
    folder: Path, module: str, stage: Stage, amount: tuple[int, int], screen: DemoScreen
) -> dict[str, float]:
    """Run one training script to its end, and return its result."""
    steps, passes = amount
    words = ["--spans", str(folder / "busy.jsonl"), "--steps", str(steps)]
    words += ["--workers", str(stage.workers), "--passes", str(passes)]
    log_path = folder / f"{stage.run}.log"
    screen.begin(stage.title, stage.run, steps)
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            env={**_environment(folder), "GPUMON_RUN": stage.run},
            stdout=subprocess.PIPE,
            stderr=log,
        )
        try:
            while process.poll() is None:
                screen.update(_state_file(folder), stage.run)
                time.sleep(_LOOK_EVERY_S)
        finally:
            if process.poll() is None:
                process.terminate()
            output, _ = process.communicate(timeout=10)
    if process.returncode != 0:
        last = log_path.read_text(errors="replace").strip().splitlines()[-1:]
        raise GpumonError(f"the demo's training run failed: {' '.join(last) or 'no reason given'}")
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def _settled_report(address: str, run: str) -> Report:
    """The report once the samples have passed the end of the run."""
    give_up_s = time.monotonic() + _SETTLE_PATIENCE_S
    settled_wall_ns = -1
    while True:
        report = fetch_report({"address": address})
        ended = [finished.wall_ns for finished in report.runs if finished.run == run]
        nothing_pending = all(gpu.totals.pending_ns == 0 for gpu in report.gpus)
        is_settled = nothing_pending and ended[:1] == [settled_wall_ns]
        if is_settled or time.monotonic() > give_up_s:
            return report
        settled_wall_ns = ended[0] if ended else -1
        time.sleep(1.2)


def _of_one_stage(earlier: Report, now: Report) -> Report:
    """The report on the time after ``earlier``, without notes, which cover the daemon's life."""
    return replace(
        report_since(earlier, now),
        origin_ns=now.origin_ns + earlier.observed_ns,
        started_at=later(now.started_at, earlier.observed_ns),
        notes=(),
    )


def _keep(address: str) -> None:
    print(f"The page is at http://{address}/ until Ctrl-C.", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print()
