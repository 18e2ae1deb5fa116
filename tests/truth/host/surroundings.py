"""What a condition needs: a cold file, a slow server, little memory, a busy neighbour."""

from __future__ import annotations

import contextlib
import mmap
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.processes import ending
from tests.truth.host.conditions import CORES, EVERY_S
from tests.truth.host.work import AGAIN_BYTES, MIB, Stage

_MEMORY_BYTES: Final = AGAIN_BYTES // 4
_SENT_BYTES: Final = 16 * 1024
_SENDS: Final = 10
"""For each batch."""


class NotHereError(Exception):
    """This machine lacks what a condition needs."""


@contextmanager
def stage_of(size: int) -> Iterator[Stage]:
    """A cold file of that size, and a slow server."""
    with (
        tempfile.TemporaryDirectory(prefix="gpumon-truth-") as name,
        cold_file(Path(name), size) as file,
        slow_server() as port,
    ):
        yield Stage(file, port)


@contextmanager
def cold_file(folder: Path, size: int) -> Iterator[Path]:
    """A file of that size, without any page in the page cache."""
    path = folder / "data.bin"
    block = os.urandom(MIB)
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(size // MIB):
                file.write(block)
            os.fsync(file.fileno())
        forget(path)
        yield path
    finally:
        path.unlink(missing_ok=True)


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def must_read_from_a_device(path: Path, flags: int = 0) -> None:
    """Raise ``NotHereError`` unless reads of a cold file come from a device."""
    forget(path)
    before = _read_bytes()
    try:
        descriptor = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        raise NotHereError(f"the file system of {path.parent} knows no O_DIRECT") from error
    with mmap.mmap(-1, MIB) as aligned:
        os.preadv(descriptor, [aligned], 0)
    os.close(descriptor)
    if _read_bytes() - before < MIB:
        raise NotHereError(f"the file system of {path.parent} is not on a device")


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


class _Sender(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client is gone
            for _ in range(_SENDS):
                self.request.sendall(bytes(_SENT_BYTES))
                time.sleep(EVERY_S / _SENDS)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def slow_server() -> Iterator[int]:
    """The port of a server that sends 160 KiB to each client, as slowly as batches come."""
    with _Server(("127.0.0.1", 0), _Sender) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """A process that keeps one of the training run's cores busy."""
    core = sorted(os.sched_getaffinity(0))[:CORES][-1]
    spinner = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    with ending(spinner):
        os.sched_setaffinity(spinner.pid, {core})
        yield


@contextmanager
def little_memory() -> Iterator[Path]:
    """The folder of a cgroup whose memory holds a quarter of the data that is read repeatedly."""
    group, limit = _place_of_a_cgroup()
    try:
        group.mkdir()
        (group / limit).write_text(str(_MEMORY_BYTES), encoding="ascii")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise NotHereError(f"no cgroup with a limit of memory can be made: {error}") from error
    try:
        yield group
    finally:
        _remove(group)


def _place_of_a_cgroup() -> tuple[Path, str]:
    """Below our own in version 1, next to it in version 2, where inner groups have no processes."""
    name, root = f"gpumon-truth-{os.getpid()}", Path("/sys/fs/cgroup")
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "memory":
            return root / "memory" / own.strip("/") / name, "memory.limit_in_bytes"
    return (root / own.strip("/")).parent / name, "memory.max"


def _remove(group: Path) -> None:
    """Once the kernel has removed its processes."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)
