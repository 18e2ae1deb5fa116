"""Runs a loop of the catalog on the fake driver, and compares what is found with its own truth."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from tests.daemon import RunningDaemon
from tests.fakenvml.build import build_fake, fake_env
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.signals import WINDOW_S
from tests.programs import ROOT
from tests.truth.untagged.board import BUSY, IDLE, PID, file_of
from tests.truth.untagged.catalog import PORT, SCRIPTS, UntaggedLoop
from tests.waiting import until

_WINDOW_NS: Final = round(WINDOW_S * NS_PER_S)
_LINES_COME_WITHIN_S: Final = 0.02
_STARTS_WITHIN_S: Final = 120.0
_WARM_SPANS: Final = 2
_FIRST_LINE: Final = re.compile(r"stack samples? at ")
CLOSE_POINTS: Final = 10.0
"""How far a share may be from the truth."""
FIRST_LINE_WITHIN_S: Final = 10.0


class NotHereError(Exception):
    """The environment of a loop is not installed."""


class Truth:
    """What one rank wrote down: when its GPU worked, and what it did meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path, self._read, self._rest = path, 0, b""
        self.pid: int | None = None
        self.spans_ns: list[tuple[int, int]] = []
        self._busy_since_ns: int | None = None
        self._acts: list[tuple[int, str]] = []

    def update(self) -> None:
        """Read what was written since the last call."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._read)
            new = file.read()
            self._read += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            for line in lines:
                self._add(*line.decode().split())

    def _add(self, at: str, word: str, value: str = "") -> None:
        at_ns = int(at)
        if word == PID:
            self.pid = int(value)
        elif word == BUSY:
            self._busy_since_ns = self._busy_since_ns or at_ns
        elif word == IDLE:
            if self._busy_since_ns is not None:
                self.spans_ns.append((self._busy_since_ns, at_ns))
            self._busy_since_ns = None
        else:
            self._acts.append((at_ns, word))

    def busy_ns(self, start_ns: int, end_ns: int) -> int:
        """How long the GPU worked between two times that are past."""
        spans = self.spans_ns
        if self._busy_since_ns is not None:
            spans = [*spans, (self._busy_since_ns, end_ns)]
        overlaps = (min(end, end_ns) - max(begin, start_ns) for begin, end in reversed(spans))
        return sum(each for each in overlaps if each > 0)

    def idle_seconds(self, start_ns: int, end_ns: int) -> dict[str, float]:
        """The idle time between two times by what the script did."""
        found: dict[str, float] = {}
        acts = [*self._acts]  # the board's thread adds to it
        ends = [at_ns for at_ns, _ in acts[1:]] + [end_ns]
        for (begin_ns, what), stop_ns in zip(acts, ends, strict=True):
            begin_ns, stop_ns = max(begin_ns, start_ns), min(stop_ns, end_ns)
            if stop_ns > begin_ns:
                busy_ns = self.busy_ns(begin_ns, stop_ns)
                idle_s = (stop_ns - begin_ns - busy_ns) / NS_PER_S
                found[what] = found.get(what, 0.0) + idle_s
        return found


class Board(threading.Thread):
    """GPUs of the fake driver that work when the ranks say so, a window at a time."""

    def __init__(self, fake: FakeNvml, ranks: Sequence[Truth]) -> None:
        super().__init__(daemon=True)
        self._fake, self.ranks, self._over = fake, ranks, threading.Event()
        for slot in range(len(ranks)):
            fake.ring(slot, [])

    def run(self) -> None:
        end_ns = time.monotonic_ns()
        listed: set[int] = set()
        while not self._over.is_set():
            end_ns += _WINDOW_NS
            wait_ns = end_ns - time.monotonic_ns()
            time.sleep(max(0.0, wait_ns / NS_PER_S) + _LINES_COME_WITHIN_S)
            for slot, rank in enumerate(self.ranks):
                rank.update()
                busy = rank.busy_ns(end_ns - _WINDOW_NS, end_ns) / _WINDOW_NS
                self._fake.push(slot, (self._fake.stamp_us(end_ns), round(100 * busy)))
                if rank.pid is not None and rank.pid not in listed:
                    listed.add(rank.pid)
                    self._fake.run(slot, rank.pid)

    def stop(self) -> None:
        self._over.set()
        self.join()


class Found(NamedTuple):
    """What one tool says of a loop.

    Attributes:
        answer: The cause, or the function of the script; empty: none.
        share: Its part of the idle time, 0 to 1.
        true_share: The same by the script's own marks.
        wrong: Causes that were given more idle time than is theirs, beyond ``CLOSE_POINTS``.
    """

    answer: str
    share: float
    true_share: float
    wrong: tuple[str, ...] = ()

    @property
    def is_close(self) -> bool:
        return 100 * abs(self.share - self.true_share) <= CLOSE_POINTS


class Measured(NamedTuple):
    """A loop, as ``gpumon why`` and ``gpumon serve --stacks`` found it.

    Attributes:
        why: Of ``gpumon why``.
        line: The line of the script that it names.
        first_line_s: When its first line with a stack sample came.
        served: Of ``gpumon serve --stacks``.
        seen_share: Part of the idle time whose cause the daemon saw, 0 to 1.
        verdict: Of the daemon.
    """

    loop: UntaggedLoop
    why: Found
    line: str
    first_line_s: float | None
    served: Found
    seen_share: float
    verdict: str
    document: Mapping[str, Any]

    @property
    def is_right(self) -> bool:
        return self.why.answer in self.loop.answers

    @property
    def is_wrong(self) -> bool:
        return bool(self.why.wrong or self.served.wrong)


def interpreter_of(environment: str) -> Path:
    """The interpreter of an environment of the checkout.

    Raises:
        NotHereError: It is not installed.
    """
    if not environment:
        return Path(sys.executable)
    python = ROOT / f".venv-{environment}" / "bin" / "python"
    if not python.exists():
        raise NotHereError(f"needs .venv-{environment}")
    return python


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def _running(loop: UntaggedLoop, folder: Path) -> Iterator[None]:
    """The script, until the end of the block; its output is in ``folder/script.log``."""
    port = str(_free_port())
    arguments = [port if one == PORT else one for one in loop.arguments]
    python = str(interpreter_of(loop.environment))
    words = [python]
    if loop.ranks > 1:
        words += ["-m", "torch.distributed.run", f"--nproc-per-node={loop.ranks}",
                  "--master-addr=127.0.0.1", f"--master-port={port}"]  # fmt: skip
    words += [str(SCRIPTS / loop.script), *arguments]
    if loop.beside:
        beside = [python, str(SCRIPTS / loop.beside), *arguments]
        words = ["sh", "-c", f"{shlex.join(beside)} | {shlex.join(words)}"]
    environ = {
        **os.environ,
        "BOARD_FOLDER": str(folder),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "KERAS_BACKEND": loop.environment,
        "TMPDIR": str(folder),
    }
    with (folder / "script.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=environ, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield
        assert process.poll() is None, (folder / "script.log").read_text()[-2000:]
    finally:
        _kill_family(process.pid)
        process.wait()


def _kill_family(pid: int) -> None:
    """End a process and its descendants: torchrun's ranks have sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()


class _WhyRun:
    """``gpumon why`` of a process; its progress goes to a terminal."""

    def __init__(self, pid: int, length_s: float, environ: Mapping[str, str]) -> None:
        terminal, inside = pty.openpty()
        began_s, self.first_line_s = time.monotonic(), None
        words = [sys.executable, "-m", "gpumon", "why", str(pid), "--json", "--for", str(length_s)]
        process = subprocess.Popen(
            words, cwd=ROOT, env={**environ, "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=inside
        )
        os.close(inside)
        reader = threading.Thread(target=self._read, args=(terminal, began_s))
        reader.start()
        try:
            output, _ = process.communicate(timeout=length_s + 60)
        finally:
            process.kill()
            process.wait()
            reader.join()
            os.close(terminal)
        assert process.returncode == 0, self.progress
        self.document: dict[str, Any] = json.loads(output)

    first_line_s: float | None
    progress = ""

    def _read(self, terminal: int, began_s: float) -> None:
        with suppress(OSError):  # the other end was closed
            while new := os.read(terminal, 4096):
                self.progress += new.decode("utf-8", "replace")
                if self.first_line_s is None and _FIRST_LINE.search(self.progress):
                    self.first_line_s = time.monotonic() - began_s


def measured(loop: UntaggedLoop, length_s: float = 60.0) -> Measured:
    """Run a loop for so long under both tools.

    Raises:
        NotHereError: Its environment is not installed.
    """
    interpreter_of(loop.environment)
    with tempfile.TemporaryDirectory(prefix="gpumon-untagged-") as name:
        folder = Path(name)
        library = build_fake(folder / "driver")
        with FakeNvml(folder / "gpus", gpus=loop.ranks) as fake:
            ranks = [Truth(Path(file_of(name, rank))) for rank in range(loop.ranks)]
            board = Board(fake, ranks)
            board.start()
            try:
                with _running(loop, folder):
                    return _watched(loop, folder, ranks[0], library, length_s)
            finally:
                board.stop()


def _watched(
    loop: UntaggedLoop, folder: Path, rank: Truth, library: Path, length_s: float
) -> Measured:
    is_warm = until(lambda: len(rank.spans_ns) >= _WARM_SPANS, _STARTS_WITHIN_S, every_s=0.1)
    assert is_warm, (folder / "script.log").read_text()[-2000:]
    assert rank.pid is not None
    environ = fake_env(folder / "gpus", library.parent)
    served_from_ns = time.monotonic_ns()
    with RunningDaemon(folder, "--stacks", environ=environ) as daemon:
        began_ns = time.monotonic_ns()
        run = _WhyRun(rank.pid, length_s, environ)
        ended_ns = time.monotonic_ns()
        time.sleep(daemon.settles_after_s)
        report = daemon.report()
    served_ns = time.monotonic_ns()
    gpu = report["gpus"][0]
    why = _of_why(loop, run.document, rank.idle_seconds(began_ns, ended_ns))
    served = _of_daemon(loop, gpu, rank.idle_seconds(served_from_ns, served_ns))
    idle_s = sum(gpu["idle_by_cause"].values())
    return Measured(
        loop,
        why,
        _line(run.document),
        run.first_line_s,
        served,
        sum(gpu["seen_by_cause"].values()) / idle_s if idle_s else 0.0,
        gpu["verdict"],
        {"why": run.document, "gpu": gpu},
    )


def _of_why(loop: UntaggedLoop, document: Mapping[str, Any], truth: dict[str, float]) -> Found:
    total_s = sum(truth.values()) or 1.0
    shares = {one["cause"]: one["ratio"] for one in document["causes"]}
    wrong = _wrong(shares, {what: idle_s / total_s for what, idle_s in truth.items()})
    cause = next(iter(shares), "")
    function = document["function"]
    if cause == IdleCause.UNKNOWN.value and function is not None:
        share = function["idle_samples"] / document["samples"]["idle"]
        return Found(
            function["function"], share, truth.get(function["function"], 0.0) / total_s, wrong
        )
    return Found(cause, shares.get(cause, 0.0), truth.get(cause, 0.0) / total_s, wrong)


def _of_daemon(loop: UntaggedLoop, gpu: Mapping[str, Any], truth: dict[str, float]) -> Found:
    total_s = sum(truth.values()) or 1.0
    seen = {cause: seen_s / total_s for cause, seen_s in gpu["seen_by_cause"].items() if seen_s}
    wrong = _wrong(seen, {what: idle_s / total_s for what, idle_s in truth.items()})
    cause = max(seen, key=lambda one: seen[one], default="")
    return Found(cause, seen.get(cause, 0.0), truth.get(cause, 0.0) / total_s, wrong)


def _wrong(shares: Mapping[str, float], truth: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(
        cause
        for cause, share in shares.items()
        if cause != IdleCause.UNKNOWN.value and 100 * (share - truth.get(cause, 0.0)) > CLOSE_POINTS
    )


def _line(document: Mapping[str, Any]) -> str:
    """The line of the script that is named, such as ``main (train.py:41)``."""
    function = document["function"] or {}
    places = document["places"]
    frame = function.get("called_from") or (places[0]["caller"] if places else None)
    if frame is None:
        return ""
    return f"{frame['function']} ({Path(frame['path']).name}:{frame['line']})"
