"""Runs programs beside each other, and prints what they say one after the other.

Each writes into a file of its own. The first that is not over is followed as it goes on, the
others are printed when it has ended: nothing is mixed, and someone always sees where it stands.
Standard library only.
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

BESIDE_EACH_OTHER: Final = 2
LOOKS_EVERY_S: Final = 0.1
INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TAKEN_DOWN_S: Final = 20.0
"""What a program has to take down what it started, once it is asked to end."""


class Lane(Enum):
    """When a program may run; each lane keeps its order."""

    FETCHES = "from the start, one at a time, at low priority"
    FIRST = "from the start, all at once"
    BESIDE = "once those that come first are over, two at a time"
    LAST = "once all others are over, two at a time, too: these mostly sleep"


@dataclass(slots=True, kw_only=True)
class Job:
    """A program, and what became of it.

    Attributes:
        name: What people call it.
        command: Its words.
        lane: When it may run.
        variables: What its environment has beside that of this process.
        needs: The names of jobs that must have ended well before; of others no one asks.
        is_shown: Whether all it says is printed; else only where it failed.
        code: Its exit code; ``None`` while it has none.
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
        """Whether it has ended, or will never begin."""
        return self.is_dropped or self.code is not None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.code is None

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log else ""


def run_side_by_side(jobs: Sequence[Job], folder: Path) -> None:
    """Run them all; what became of each stands in it.

    Raises:
        KeyboardInterrupt: Someone interrupted it; nothing that it started is left.

    Args:
        jobs: In the order in which they are printed, and started where several may.
        folder: For their files.
    """
    printer = _Printer(jobs)
    with _interrupts_noted() as interrupts:
        try:
            while any(not job.is_over for job in jobs if job.lane is not Lane.FETCHES):
                if interrupts:
                    raise KeyboardInterrupt
                _drop_what_cannot_run(jobs)
                for job in _may_start(jobs):
                    _start(job, folder)
                printer.go_on()
                time.sleep(LOOKS_EVERY_S)
                for job in jobs:
                    _note_its_end(job)
        finally:
            _end([job for job in jobs if job.is_running], interrupts)
            printer.go_on()


@contextlib.contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """The signals that came: raised wherever it is, one might hide what was just started."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    # SIGINT, too, which is ignored by whoever was started with "&".
    before = [(number, signal.signal(number, note)) for number in INTERRUPTS]
    try:
        yield noted
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _drop_what_cannot_run(jobs: Sequence[Job]) -> None:
    lost = {job.name for job in jobs if job.is_over and job.code != 0}
    for job in jobs:
        if job.process is None and lost.intersection(job.needs):
            job.is_dropped = True


def _may_start(jobs: Sequence[Job]) -> list[Job]:
    """Who may start now."""
    awaited = {job.name for job in jobs if not job.is_over}
    running = {lane: [job for job in jobs if job.is_running and job.lane is lane] for lane in Lane}
    ready: dict[Lane, list[Job]] = {lane: [] for lane in Lane}
    for job in jobs:
        if job.process is None and not job.is_dropped and not awaited.intersection(job.needs):
            ready[job.lane].append(job)
    going_on = {job.lane for job in jobs if not job.is_over}
    may = [*ready[Lane.FETCHES][: 1 - len(running[Lane.FETCHES])], *ready[Lane.FIRST]]
    if Lane.FIRST not in going_on:
        may += ready[Lane.BESIDE][: BESIDE_EACH_OTHER - len(running[Lane.BESIDE])]
    if going_on == {Lane.LAST}:
        may += ready[Lane.LAST][: BESIDE_EACH_OTHER - len(running[Lane.LAST])]
    return may


def _start(job: Job, folder: Path) -> None:
    job.log = folder / f"{job.name.replace(' ', '-')}.log"
    niceness = ("nice", "-n", "10") if job.lane is Lane.FETCHES else ()
    with job.log.open("wb") as log:
        job.process = subprocess.Popen(
            [*niceness, *job.command],
            env={**os.environ, **job.variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # an interrupt reaches it once, from here
        )
    job.began_s = time.monotonic()


def _note_its_end(job: Job) -> None:
    if job.process is not None and job.code is None and job.process.poll() is not None:
        job.code, job.ended_s = job.process.returncode, time.monotonic()


def _end(running: Sequence[Job], interrupts: Sequence[int]) -> None:
    """Interrupt them as a terminal would; kill what does not end, or once someone asks again."""
    _signal_all(running, signal.SIGINT)
    asked, give_up_s = len(interrupts), time.monotonic() + TAKEN_DOWN_S
    while any(job.is_running for job in running):
        if len(interrupts) > asked or time.monotonic() > give_up_s:
            _signal_all([job for job in running if job.is_running], signal.SIGKILL)
        time.sleep(LOOKS_EVERY_S)
        for job in running:
            _note_its_end(job)


def _signal_all(running: Sequence[Job], number: signal.Signals) -> None:
    for job in running:
        if job.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.process.pid, number)


class _Printer:
    """Follows one after the other."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs, self._left = jobs, list(jobs)
        self._waited_for: Job | None = None
        self._followed: Job | None = None
        self._log: FileIO | None = None

    def go_on(self) -> None:
        """Print what has been reported since."""
        while (job := self._followed or self._next()) is not None:
            self._followed = job
            if self._log is None:
                assert job.log is not None
                print(f"\n=== {job.name}: {shlex.join(job.command)}", flush=True)
                self._log = FileIO(job.log)
            is_over = job.is_over  # asked first: what it says last is there by then
            while text := self._log.read(1 << 16):
                sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            if not is_over:
                return
            self._log.close()
            self._followed = self._log = None
        self._name_what_still_runs()

    def _name_what_still_runs(self) -> None:
        """Where nothing is shown: what is fetched may be gigabytes."""
        running = [job for job in self._jobs if job.is_running]
        if running and not any(job.is_shown for job in running):
            if self._waited_for is not running[0]:
                print(f"\nWaiting for {running[0].name} ...", flush=True)
            self._waited_for = running[0]

    def _next(self) -> Job | None:
        for job in self._left:
            if job.process is not None and (job.is_shown or job.code):
                self._left.remove(job)
                return job
        return None
