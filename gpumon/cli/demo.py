"""``gpumon demo``: a real training with a slow input pipeline, then the same with prefetch."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess  # the one command that starts other programs: a daemon and two trainings
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpumon.cli.arguments import count_argument
from gpumon.cli.demo_screen import DemoScreen
from gpumon.core.report import Report
from gpumon.core.report_since import report_since
from gpumon.errors import GpumonError
from gpumon.outlets.http_server import DEFAULT_LISTEN
from gpumon.outlets.report_comparison import side_by_side
from gpumon.outlets.report_text import render_report
from gpumon.outlets.text_style import style_for
from gpumon.pipeline.report_history import later
from gpumon.sources.daemon import fetch_report

_LOOK_EVERY_S = 0.5
_DAEMON_PATIENCE_S = 15.0
_SETTLE_PATIENCE_S = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One of the two trainings.

    Attributes:
        title: What is told of it.
        run: Its name in the report.
        workers: Threads that read ahead; 0: none.
    """

    title: str
    run: str
    workers: int


_STAGES = (
    Stage(title="slow input, read in the loop", run="slow-input", workers=0),
    Stage(title="the same input, read ahead", run="prefetch", workers=4),
)


class DemoCommand:
    """See gpumon work on a machine without a GPU.

    Starts a daemon and a real training loop that really computes and really
    waits for a slow data store, then the same loop with prefetch, and prints
    both reports side by side. The training is plain Python: nothing else has
    to be installed. The GPU is simulated: its busy time is when the compute
    ran, noted by a wrapper below the hooks that gpumon reads. Takes under a
    minute, a little more where all cores are busy, and ends by itself.
    """

    name = "demo"
    summary = "see it work without a GPU: slow input, then prefetch"
    example = "gpumon demo --keep      # and leave the page up"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""
        parser.add_argument(
            "--keras", action="store_true", help="train with Keras on JAX instead of plain Python"
        )
        parser.add_argument(
            "--keep", action="store_true", help="leave the page up at the end, until Ctrl-C"
        )
        parser.add_argument(
            "--steps",
            type=count_argument(20, 100_000),
            default=300,
            help="training steps of each run (default: 300)",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Run both trainings and compare."""
        module = _training_module(keras=args.keras)
        style = style_for(sys.stdout, os.environ)
        with (
            _scratch_folder() as folder,
            _daemon(folder) as address,
            DemoScreen(address) as screen,
        ):
            reports, passes, earlier = [], 0, fetch_report({"address": address})
            for stage in _STAGES:
                result = _train(folder, module, stage, (args.steps, passes), screen)
                passes = int(result["passes"])
                now = _settled_report(address, stage.run)
                reports.append(_of_one_stage(earlier, now))
                screen.say_truth(stage.title, reports[-1], result)
                earlier = now
            screen.close()
            for stage, report in zip(_STAGES, reports, strict=True):
                print(f"\n== {stage.title}\n\n{render_report(report, style)}", end="")
            before, after = reports
            both = side_by_side(before, after, style, titles=("slow input", "prefetch"))
            print(f"\n== side by side\n\n{both}")
            print("The GPU was simulated; the waiting, the reading and the computing were real.")
            if args.keep:
                _keep(address)
        return 0


def _training_module(*, keras: bool) -> str:
    if not keras:
        return "trainer_hooks.examples.plain_training"
    needed = ("keras", "jax")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise GpumonError(
            f"--keras trains with Keras on JAX, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            f"pip install {' '.join(missing)}; without --keras the demo needs neither"
        )
    return "trainer_hooks.examples.keras_training"


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(prefix="gpumon-demo-")
    except OSError as error:
        raise GpumonError(
            f"the demo needs a folder for a few files, and {error.strerror or error}: "
            "set TMPDIR to one that you may write"
        ) from error
    with made as name:
        yield Path(name)


@contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    """A daemon that follows the spans of the trainings; its address."""
    words = ["serve", "--source", f"follow:{folder / 'busy.jsonl'}", "--listen", _free_listen()]
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
    state_file = folder / "run" / "state.json"
    give_up_s = time.monotonic() + _DAEMON_PATIENCE_S
    while time.monotonic() < give_up_s and process.poll() is None:
        if state_file.exists():
            address: str = json.loads(state_file.read_bytes())["address"]
            return address
        time.sleep(0.1)
    raise GpumonError(f"the demo's daemon did not start: {Path(log).read_text().strip()}")


def _free_listen() -> str:
    """The usual address if it is free, else any: a real daemon may be running."""
    host, _, port = DEFAULT_LISTEN.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return f"{host}:0"
    return DEFAULT_LISTEN


def _environment(folder: Path) -> dict[str, str]:
    # One thread for the arithmetic: the rest of the machine belongs to the input.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        # No option of the user's own daemon is one of the demo's.
        **{name: text for name, text in os.environ.items() if not name.startswith("GPUMON_")},
        **threads,
        "GPUMON_RUNTIME_DIR": str(folder / "run"),
        "GPUMON_GPUS": "0",
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
    }


def _train(
    folder: Path, module: str, stage: Stage, amount: tuple[int, int], screen: DemoScreen
) -> dict[str, float]:
    """Run one training to its end; what it says of itself."""
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
                screen.look(folder / "run" / "state.json", stage.run)
                time.sleep(_LOOK_EVERY_S)
        finally:
            if process.poll() is None:
                process.terminate()
            output, _ = process.communicate(timeout=10)
    if process.returncode != 0:
        last = log_path.read_text(errors="replace").strip().splitlines()[-1:]
        raise GpumonError(f"the demo's training failed: {' '.join(last) or 'no reason given'}")
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def _settled_report(address: str, run: str) -> Report:
    """The report once the samples have passed the end of the run."""
    give_up_s = time.monotonic() + _SETTLE_PATIENCE_S
    settled_wall_ns = -1
    while True:
        report = fetch_report({"address": address})
        ended = [one.wall_ns for one in report.runs if one.run == run]
        nothing_pending = all(gpu.totals.pending_ns == 0 for gpu in report.gpus)
        if ended and ended[0] == settled_wall_ns and nothing_pending:
            return report
        if time.monotonic() > give_up_s:
            return report
        settled_wall_ns = ended[0] if ended else -1
        time.sleep(1.2)


def _of_one_stage(earlier: Report, now: Report) -> Report:
    """What came after ``earlier``. Its notes are of the daemon's whole life, which this is not."""
    return replace(
        report_since(earlier, now),
        origin_ns=now.origin_ns + earlier.observed_ns,
        started_at=later(now.started_at, earlier.observed_ns),
        notes=(),
    )


def _keep(address: str) -> None:
    print(f"The page stays up at http://{address}/ until Ctrl-C.", flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print()
