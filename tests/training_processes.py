"""Real training processes that write rings, for tests that read them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpumon.core.ring_format.events import RingsReading
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from gpumon.sources.system_clock import read_boot_id
from tests.processes import ending
from tests.programs import ran
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]

TRAINING = """
import sys, time
from trainer_hooks import phase, step, timed
for batch in timed(range(3)):
    with phase("train_step"):
        time.sleep(0.02)
    step(samples=4)
waiting = phase("input_wait")
waiting.__enter__()
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def process(
    code: str,
    runtime: Path,
    *args: str,
    before: tuple[str, ...] = (),
    environ: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a script until it prints "there"; kill it at the end.

    Args:
        code: The script.
        runtime: Its runtime folder.
        args: In its ``sys.argv``.
        before: A command that starts it, such as ``unshare``.
        environ: More variables.
    """
    folders = {"GPUMON_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        [*before, sys.executable, "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, **folders, **(environ or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with ending(started) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        yield child


def run_to_its_end(
    code: str,
    runtime: Path,
    *args: str,
    before: tuple[str, ...] = (),
    timeout_s: float = PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a script that ends by itself; the arguments are those of ``process``."""
    folders = {"GPUMON_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)}
    return ran(*before, sys.executable, "-c", code, *args, environ=folders, timeout_s=timeout_s)


_OPEN: list[PhaseRingReader] = []


def reader_of(runtime: Path) -> PhaseRingReader:
    """A reader as in a daemon; it is closed after the test."""
    _OPEN.append(PhaseRingReader([runtime], boot_id=read_boot_id()))
    return _OPEN[-1]


def close_readers() -> None:
    """Close the readers of a test: 256 rings are 256 descriptors."""
    while _OPEN:
        _OPEN.pop().close()


def read(reader: PhaseRingReader) -> RingsReading:
    return reader.read(time.monotonic_ns())
