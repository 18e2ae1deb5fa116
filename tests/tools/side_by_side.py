"""Run programs in parallel and print their output one after the other.

The output of the first unfinished program is printed as it comes; that of the others once it is
their turn. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Final

AT_ONCE: Final = 2
POLL_S: Final = 0.1
INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_TIMEOUT_S: Final = 20.0


class Lane(Enum):
    """When a program may start. Within a lane, programs start in their order."""

    INSTALLS = "at once, one at a time, at low priority"
    FIRST = "at once, all in parallel"
    PARALLEL = "after FIRST, two at a time"
    LAST = "after all others, two at a time"


@dataclass(slots=True, kw_only=True)
class Job:
    """A program and its state.

    Attributes:
        command: The program and its arguments.
        variables: Added to the environment of this process.
        needs: Names of jobs that must have succeeded; names without a job are ignored.
        is_shown: Whether its output is always printed, or only if it fails.
        code: Its exit code; ``None`` until it has ended.
        is_dropped: Whether it will never start, because a job that it needs has failed.
    """

    name: str
    command: Sequence[str]
    lane: Lane
    variables: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    is_shown: bool = True
    code: int | None = None
    is_dropped: bool = False
    log: Path | None = None
    began_s: float = 0.0
    ended_s: float = 0.0
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_over(self) -> bool:
        return self.is_dropped or self.code is not None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.code is None

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log else ""

    def start(self, folder: Path) -> None:
        self.log = folder / f"{self.name.replace(' ', '-')}.log"
        nice = ("nice", "-n", "10") if self.lane is Lane.INSTALLS else ()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*nice, *self.command],
                env={**os.environ, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that only this process forwards an interrupt
            )
        self.began_s = time.monotonic()

    def poll(self) -> None:
        if self.process is not None and self.code is None and self.process.poll() is not None:
            self.code, self.ended_s = self.process.returncode, time.monotonic()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


def run_side_by_side(jobs: Sequence[Job], folder: Path) -> None:
    """Run all jobs; their results are in their attributes.

    Args:
        jobs: In the order in which they are printed, and start within a lane.
        folder: For their output.

    Raises:
        KeyboardInterrupt: After a signal. All jobs have ended.
    """
    printer = _Printer(jobs)
    with _interrupts_recorded() as interrupts:
        try:
            while any(not job.is_over for job in jobs if job.lane is not Lane.INSTALLS):
                if interrupts:
                    raise KeyboardInterrupt
                for job in _startable(jobs):
                    job.start(folder)
                printer.update()
                time.sleep(POLL_S)
                for job in jobs:
                    job.poll()
        finally:
            _stop([job for job in jobs if job.is_running], interrupts)
            printer.update()


@contextlib.contextmanager
def _interrupts_recorded() -> Iterator[list[int]]:
    """Record signals. An exception within ``start`` could lose the process just started."""
    recorded: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        recorded.append(number)

    before = [(number, signal.signal(number, record)) for number in INTERRUPTS]
    try:
        yield recorded
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _startable(jobs: Sequence[Job]) -> list[Job]:
    """The jobs to start now. Drop those that need a failed job."""
    failed = {job.name for job in jobs if job.is_over and job.code != 0}
    for job in jobs:
        job.is_dropped = job.is_dropped or (
            job.process is None and not failed.isdisjoint(job.needs)
        )
    pending = {job.name for job in jobs if not job.is_over}
    lanes = {job.lane for job in jobs if not job.is_over}
    limits = {
        Lane.INSTALLS: 1,
        Lane.FIRST: len(jobs),
        Lane.PARALLEL: 0 if Lane.FIRST in lanes else AT_ONCE,
        Lane.LAST: AT_ONCE if lanes == {Lane.LAST} else 0,
    }
    found: list[Job] = []
    for lane, limit in limits.items():
        running = sum(job.is_running for job in jobs if job.lane is lane)
        ready = [
            job
            for job in jobs
            if job.lane is lane and not job.is_over and job.process is None
            if pending.isdisjoint(job.needs)
        ]
        found += ready[: max(0, limit - running)]
    return found


def _stop(running: Sequence[Job], interrupts: Sequence[int]) -> None:
    """Interrupt jobs; kill them after a timeout, or at a second interrupt."""
    for job in running:
        job.signal(signal.SIGINT)
    count, timeout_at_s = len(interrupts), time.monotonic() + STOP_TIMEOUT_S
    while any(job.is_running for job in running):
        if len(interrupts) > count or time.monotonic() > timeout_at_s:
            for job in running:
                job.signal(signal.SIGKILL)
        time.sleep(POLL_S)
        for job in running:
            job.poll()


class _Printer:
    """Prints the output of one job after the other."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs, self._left = jobs, list(jobs)
        self._current: tuple[Job, FileIO] | None = None
        self._awaited: Job | None = None

    def update(self) -> None:
        """Print what has been written since the last call."""
        while (current := self._current or self._next()) is not None:
            job, log = self._current = current
            is_over = job.is_over  # read before the log, so that nothing is missed
            while text := log.read(1 << 16):
                sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            if not is_over:
                return
            log.close()
            self._current = None
        running = [job for job in self._jobs if job.is_running]
        if running and not any(job.is_shown for job in running):
            if self._awaited is not running[0]:  # it may be downloading gigabytes
                print(f"\nWaiting for {running[0].name} ...", flush=True)
            self._awaited = running[0]

    def _next(self) -> tuple[Job, FileIO] | None:
        for job in self._left:
            if job.log is not None and (job.is_shown or job.code):
                self._left.remove(job)
                print(f"\n=== {job.name}: {shlex.join(job.command)}", flush=True)
                return job, FileIO(job.log)
        return None
