"""Runs a command and looks at it and at all that it started."""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

PATIENCE_S = 300.0


class Ended(NamedTuple):
    """How a command went.

    Attributes:
        code: Its exit code.
        wall_s: Seconds from its start to its end.
        cpu_s: CPU seconds that it and what it started and awaited took.
        output: What it and its children printed.
        helpers: Process name to resident and proportional MiB, of each
            process but the trainer, at the moment it was looked at.
    """

    code: int
    wall_s: float
    cpu_s: float
    output: str
    helpers: list[tuple[str, float, float]]


def run(
    words: Sequence[str],
    *,
    environ: Mapping[str, str],
    folder: Path,
    trainer: Callable[[], int | None] = lambda: None,
) -> Ended:
    """Run to the end; once ``trainer`` gives its pid, look at all others for their memory."""
    log = folder / "output.txt"
    helpers: list[tuple[str, float, float]] = []
    cpu_before_s = _cpu_of_children_s()
    with log.open("w") as output:
        start_s = time.monotonic()
        process = subprocess.Popen(
            words, env=dict(environ), cwd=folder, stdout=output, stderr=subprocess.STDOUT
        )
        is_seen = False
        while process.poll() is None:
            time.sleep(0.02)
            pid = None if is_seen else trainer()
            if pid is not None:
                is_seen = True
                helpers = memory_of_helpers(process.pid, pid)
            if time.monotonic() - start_s > PATIENCE_S:
                process.kill()
        wall_s = time.monotonic() - start_s
    cpu_s = _cpu_of_children_s() - cpu_before_s
    return Ended(process.returncode, wall_s, cpu_s, log.read_text(errors="replace"), helpers)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_of_helpers(root_pid: int, trainer_pid: int) -> list[tuple[str, float, float]]:
    """Resident and proportional MiB of a process and its descendants, but for the trainer."""
    root = psutil.Process(root_pid)
    found = [root, *root.children(recursive=True)]
    return [memory_of(process) for process in found if process.pid != trainer_pid]


def memory_of_pid(pid: int) -> tuple[str, float, float]:
    """The same of a process that runs."""
    return memory_of(psutil.Process(pid))


def memory_of(process: Any) -> tuple[str, float, float]:  # noqa: ANN401
    """Name, resident and proportional MiB of a process."""
    try:
        memory = process.memory_full_info()
        return process.name(), memory.rss / 2**20, memory.pss / 2**20
    except psutil.Error:
        return "gone", 0.0, 0.0
