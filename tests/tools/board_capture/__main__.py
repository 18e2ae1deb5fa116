"""Measures one NVIDIA board and writes its page (``make gpu`` runs this).

    python -m tests.tools.board_capture [--quick | --limit SECONDS] [--into FOLDER]

Takes a few minutes, changes no setting of the board, and writes its results after each part:
``docs/measured/<board>.md``, and a recording, ``tests/recordings/<board>.gpumon``. Parts under load
need a child process with PyTorch; without it they are marked as not measured. Exit codes: 0; 1 if
nothing can be written; 3 if there is no GPU to measure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from gpumon.cli.doctor.driver_answers import GpuAnswers
from gpumon.cli.doctor.sampler_run import run_sampler
from gpumon.core.attribution.visible_devices import cuda_devices
from gpumon.core.clock import nanoseconds
from gpumon.core.sample import Device
from gpumon.errors import SourceUnavailableError
from gpumon.sources.system_clock import SystemClock
from tests.tools.board_capture.capture import EVERYTHING, NOMINAL_S, Capture
from tests.tools.board_capture.load import Load
from tests.tools.board_capture.measurements import Results
from tests.tools.board_capture.page import board_page
from tests.tools.measured_page import Machine

ROOT: Final = Path(__file__).resolve().parents[3]
NO_GPU: Final = 3
CANNOT: Final = 1
WHOLE_S: Final = 400.0
QUICK_S: Final = 100.0
_RECORDER_SLACK_S: Final = 60.0


class CaptureError(Exception):
    """Why a part was not measured, as a sentence."""


def main(argv: Sequence[str] | None = None) -> int:
    """Capture the first complete GPU that CUDA may use; return the exit code."""
    args = _arguments(argv)
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    try:
        _, driver = run_sampler(clock, EVERYTHING, readings=3, every_s=0.2)
    except SourceUnavailableError as error:
        return _say(f"nothing was captured: {error}", NO_GPU)
    gpu = chosen_gpu(driver.gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if gpu is None:
        return _say(
            "nothing was captured: no GPU is whole (MIG, or lost) and among those that "
            "CUDA_VISIBLE_DEVICES leaves",
            NO_GPU,
        )
    if "FAKENVML_CTL" in os.environ and ROOT in (args.into / "x").parents:
        return _say("the GPUs are the tests' own: --into another folder", NO_GPU)
    results = Results(
        driver=driver,
        gpu=gpu,
        command=f"make gpu{' ARGS=--quick' if args.quick else ''}",
        date=datetime.now(timezone.utc).date().isoformat(),
        python=", ".join(_versions()),
    )
    page = args.into / Machine((results.board,), "").board_page_name
    recording = args.recordings / page.with_suffix(".gpumon").name
    try:
        for folder in (args.into, args.recordings):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        return _say(
            f"nothing was captured: cannot write into {folder}: {error.strerror}: name other "
            "folders, as in ARGS='--capture --into FOLDER --recordings FOLDER'",
            CANNOT,
        )
    limit_s = QUICK_S if args.quick else args.limit
    Capture(
        clock=clock,
        read_clock_ns=time.clock_gettime_ns,
        pace=min(1.0, max(0.02, (limit_s - 10.0) / NOMINAL_S)),
        until_ns=began_ns + nanoseconds(limit_s),
        open_load=lambda found: Load(gpu_uuid=found.uuid),
        record=lambda duration_s: _record(results, recording, duration_s),
        results=results,
        keep=lambda: page.write_text(board_page(results), encoding="utf-8"),
    ).measure()
    print(f"make gpu: what was measured is in {page}", flush=True)
    return 0


def _say(sentence: str, code: int) -> int:
    print(f"make gpu: {sentence}", file=sys.stderr)
    return code


def chosen_gpu(gpus: Sequence[GpuAnswers], visible: str | None) -> GpuAnswers | None:
    """Return the first GPU without MIG that ``$CUDA_VISIBLE_DEVICES`` allows."""
    devices = [
        Device(uuid=gpu.uuid or "", index=at, mig_enabled=bool(gpu.mig_enabled))
        for at, gpu in enumerate(gpus)
    ]
    ours = (gpus[device.index] for device in cuda_devices(visible, devices))
    return next((gpu for gpu in ours if not gpu.mig_enabled and gpu.lost is None), None)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="board_capture")
    parser.add_argument("--quick", action="store_true", help=f"about {QUICK_S:.0f} s")
    parser.add_argument("--limit", type=float, default=WHOLE_S, metavar="SECONDS")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "measured", metavar="FOLDER")
    parser.add_argument(
        "--recordings", type=Path, default=ROOT / "tests" / "recordings", metavar="FOLDER"
    )
    return parser.parse_args(argv)


def _versions() -> Iterator[str]:
    yield f"Python {sys.version.split()[0]}"
    for name in ("torch", "jax", "nvidia-ml-py"):
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def _record(results: Results, path: Path, duration_s: float) -> None:
    """A short recording, as ``gpumon record`` makes it.

    Raises:
        CaptureError: It could not be made; says why.
    """
    words: list[Any] = [sys.executable, "-m", "gpumon", "record", path, "--force"]
    words += ["--for", f"{max(1, round(duration_s))}s", "--note", f"make gpu, {results.date}"]
    # A runtime folder of its own: other users' runs are not captured.
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "GPUMON_RUNTIME_DIR": folder}
        done = subprocess.run(
            words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False,
            timeout=duration_s + _RECORDER_SLACK_S,
        )  # fmt: skip
    if done.returncode != 0:
        raise CaptureError(done.stderr.strip() or f"exit code {done.returncode}")
    results.recording = path.name


if __name__ == "__main__":
    sys.exit(main())
