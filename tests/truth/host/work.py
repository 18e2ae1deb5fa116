"""What one batch costs. Each function really does what its name says, on any thread or process."""

from __future__ import annotations

import argparse
import hashlib
import mmap
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

MIB: Final = 1 << 20
_PAGE: Final = 4096
_COPIED_BYTES: Final = 256 * MIB
AGAIN_BYTES: Final = 256 * MIB
"""The part of the file that is read repeatedly."""


class Stage(NamedTuple):
    """What a training run finds on the machine.

    Attributes:
        file: Of many times ``AGAIN_BYTES``, on a device.
        port: Of a slow server on this machine.
    """

    file: Path
    port: int

    @property
    def arguments(self) -> list[str]:
        """For a training script."""
        return ["--file", str(self.file), "--port", str(self.port)]


def run_parser(doc: str) -> argparse.ArgumentParser:
    """A parser with the arguments of every run on a stage; ``doc`` is its module's docstring."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--spans", type=Path, required=True, help="where busy spans go")
    parser.add_argument("--file", type=Path, required=True, help="to be read")
    parser.add_argument("--port", type=int, required=True, help="of the slow server")
    parser.add_argument("--cgroup", type=Path, help="to train in")
    return parser


def join_cgroup(folder: Path | None) -> None:
    """Move this process to a cgroup, if one is given."""
    if folder is not None:
        (folder / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


Work = Callable[[Stage, float, int], None]
"""Makes the batch of that number, in about so many seconds."""


def nothing(stage: Stage, seconds: float, number: int) -> None:
    """The batch is ready."""


def compute(stage: Stage, seconds: float, number: int) -> None:
    """Python, which needs the GIL; so many seconds of a core."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        sum(value * value for value in range(500))


def compute_without_gil(stage: Stage, seconds: float, number: int) -> None:
    """A loop in C that releases the GIL; so many seconds of a core."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        hashlib.sha256(_ZEROS).digest()


def copy(stage: Stage, seconds: float, number: int) -> None:
    """Copy far more memory than any cache holds."""
    source, target = _memory(os.getpid())
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        target[:] = source


def sleep(stage: Stage, seconds: float, number: int) -> None:
    """Only wait, as for a slow object store."""
    time.sleep(seconds)


def read_directly(stage: Stage, seconds: float, number: int) -> None:
    """One MiB after the other, with O_DIRECT."""
    _read_directly(stage, seconds, MIB, _in_sequence(number))


def read_directly_at_random(stage: Stage, seconds: float, number: int) -> None:
    """Random blocks of 4 KiB, with O_DIRECT."""
    _read_directly(stage, seconds, _PAGE, _at_random(number))


def read_buffered(stage: Stage, seconds: float, number: int) -> None:
    """As most programs read; then drop the file from the page cache."""
    end_s = time.monotonic() + seconds
    descriptor = os.open(stage.file, os.O_RDONLY)
    try:
        blocks = os.fstat(descriptor).st_size // MIB
        place = _in_sequence(number)
        while time.monotonic() < end_s:
            os.pread(descriptor, MIB, place() % blocks * MIB)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def map_cold(stage: Stage, seconds: float, number: int) -> None:
    """Random pages of a mapped file that is not in the page cache."""
    _touch_pages(stage, seconds, number, stage.file.stat().st_size)
    descriptor = os.open(stage.file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def map_again(stage: Stage, seconds: float, number: int) -> None:
    """The same pages repeatedly; where memory is short they have been evicted."""
    _touch_pages(stage, seconds, number, AGAIN_BYTES)


def receive(stage: Stage, seconds: float, number: int) -> None:
    """All that the server sends for one batch."""
    with socket.create_connection(("127.0.0.1", stage.port)) as connection:
        while connection.recv(64 * 1024):
            pass


def read_pipe(stage: Stage, seconds: float, number: int) -> None:
    """A line of a program that sleeps before each."""
    _other_end(os.getpid(), seconds).readline()


WORKS: Final[Mapping[str, Work]] = MappingProxyType(
    {
        "none": nothing,
        "compute": compute,
        "compute without the GIL": compute_without_gil,
        "copy": copy,
        "sleep": sleep,
        "read directly": read_directly,
        "read directly at random": read_directly_at_random,
        "read": read_buffered,
        "map": map_cold,
        "map again and again": map_again,
        "receive": receive,
        "read a pipe": read_pipe,
    }
)

_ZEROS: Final = bytes(256 * 1024)


@cache
def _memory(process: int) -> tuple[memoryview, memoryview]:
    return memoryview(bytes(_COPIED_BYTES)), memoryview(bytearray(_COPIED_BYTES))


@cache
def _other_end(process: int, seconds: float) -> Any:
    program = f"import time\nwhile True:\n    time.sleep({seconds})\n    print(flush=True)"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return child.stdout


Place = Callable[[], int]
"""The number of the next block, counted on without end."""


def _in_sequence(number: int) -> Place:
    blocks = iter(range(number * 1024, sys.maxsize))
    return lambda: next(blocks)


def _at_random(number: int) -> Place:
    draw = random.Random(number).randrange
    return lambda: draw(1 << 40)


def _read_directly(stage: Stage, seconds: float, size: int, place: Place) -> None:
    end_s = time.monotonic() + seconds
    descriptor = os.open(stage.file, os.O_RDONLY | os.O_DIRECT)
    try:
        blocks = os.fstat(descriptor).st_size // size
        with mmap.mmap(-1, size) as aligned:
            while time.monotonic() < end_s:
                os.preadv(descriptor, [aligned], place() % blocks * size)
    finally:
        os.close(descriptor)


def _touch_pages(stage: Stage, seconds: float, number: int, size: int) -> None:
    end_s = time.monotonic() + seconds
    place = _at_random(number)
    with stage.file.open("rb") as file, mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) as data:
        data.madvise(mmap.MADV_RANDOM)
        while time.monotonic() < end_s:
            data[place() % (size // _PAGE) * _PAGE]
