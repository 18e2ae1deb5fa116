"""Writes a recording."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.codecs.recording_codec import (
    MAGIC,
    BlockWriter,
    RecordingHeader,
    devices_of,
    pack_block,
)
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import NO_RECORDS
from gpumon.errors import GpumonError, UsageError

_BLOCK_NS: Final = 5 * NS_PER_S
"""The most that is lost if the recorder is killed; shorter blocks compress worse."""
_BLOCK_BYTES: Final = 1 << 20
_MAX_EVENTS: Final = 200_000
"""More than one tick has; each takes up to 45 bytes of a block."""
_MODE: Final = 0o600
"""Names of processes and runs are private."""


class RecordingWriter:
    """Writes complete blocks, so that the file is readable at any time.

    ``keep`` and ``close`` raise ``GpumonError`` if the disk is full (all blocks so far are
    complete), or if the file was removed.

    Attributes:
        kept_count: Ticks kept so far, including those not yet written.
        written_bytes: Size of the file.
        elapsed_ns: From the first tick to the newest.

    Args:
        path: The file to create.
        replaces: Whether an existing recording may be replaced; another file never is.

    Raises:
        UsageError: The path cannot be a recording.
        GpumonError: The file exists already or cannot be created.
    """

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self.path = path
        self.kept_count = self.written_bytes = self.elapsed_ns = 0
        self._blocks: BlockWriter | None = None
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._first_ns = self._block_began_ns = self._whole_ns = 0
        self._was_there = self._has_failed = False
        self._descriptor = self._made(replaces=replaces)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the recording, unless writing has failed."""
        if self._has_failed:
            self._close_file()
        else:
            self.close("ended" if error is None else "failed")

    def keep(self, reading: Reading, header: RecordingHeader) -> None:
        """Keep one tick. The first is written at once, with the header; others within seconds."""
        at_ns = reading.tick.at_ns
        is_first = self._blocks is None
        if self._blocks is None:
            os.ftruncate(self._descriptor, 0)
            self._blocks = BlockWriter(replace(header, devices=devices_of([reading])))
            self._first_ns = at_ns
        if self._lines and at_ns - self._block_began_ns >= _BLOCK_NS:
            self._flush()
        if not self._lines:
            self._lines = self._blocks.begin_block()
            self._block_began_ns = at_ns
        line = self._blocks.line(_bounded(reading))
        self._lines.append(line)
        self._line_bytes += len(line)
        self.kept_count += 1
        self.elapsed_ns = at_ns - self._first_ns
        if is_first or self._line_bytes > _BLOCK_BYTES:
            self._flush()

    def close(self, why: str) -> None:
        """Write the last block and mark the end. Safe to call twice.

        A recording without a tick is removed.
        """
        if self._descriptor < 0:
            return
        try:
            if self._blocks is not None:
                if not self._lines:
                    self._lines = self._blocks.begin_block()
                self._lines.append(self._blocks.end_line(why))
                self._flush()
                with contextlib.suppress(OSError):
                    os.fsync(self._descriptor)
        finally:
            self._close_file()

    def _close_file(self) -> None:
        """Close the file; remove it if it is empty and new."""
        if self._descriptor >= 0:
            if not self.written_bytes and not self._was_there:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def _flush(self) -> None:
        """Write the block; truncate a partial one."""
        block = pack_block(b"".join(self._lines))
        self._lines, self._line_bytes = [], 0
        left = memoryview(block)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.written_bytes)
            self._has_failed = True
            raise GpumonError(self._full(error)) from error
        self.written_bytes += len(block)
        self._whole_ns = self.elapsed_ns
        if not os.fstat(self._descriptor).st_nlink:
            self._has_failed = True
            raise GpumonError(
                f"{self.path} was removed while it was written: the recording is lost"
            )

    def _full(self, error: OSError) -> str:
        if not self.written_bytes:
            return f"cannot write {self.path}: {error.strerror}"
        return (
            f"cannot write any more to {self.path}: {error.strerror}. {self.written_bytes:,} bytes "
            f"are complete, about {seconds(self._whole_ns):,.0f} s: show them with "
            f"`gpumon replay {self.path}`"
        )

    def _made(self, *, replaces: bool) -> int:
        if str(self.path) == "-":
            raise UsageError("a recording cannot be written to standard output: name a file")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self._was_there = self.path.exists()
            descriptor = os.open(self.path, flags | (0 if replaces else os.O_EXCL), _MODE)
        except FileExistsError as error:
            what = "is a folder: name a file in it" if self.path.is_dir() else _TAKEN
            raise GpumonError(f"{self.path} {what}") from error
        except (OSError, ValueError) as error:
            raise GpumonError(f"cannot create {self.path}: {_reason(self.path, error)}") from error
        try:
            self._lock(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _lock(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise GpumonError(f"{self.path} is not a regular file: a recording needs one")
        if status.st_size and os.pread(descriptor, len(MAGIC), 0) != MAGIC:
            raise GpumonError(f"{self.path} {_NO_RECORDING}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise GpumonError(f"{self.path} is being written by another gpumon") from error
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, _MODE)


_NO_RECORDING: Final = "is not a recording, and --force replaces nothing else: name another file"
_TAKEN: Final = "exists already: name another file, or replace it with --force"


def _reason(path: Path, error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code == errno.ENOENT:
        return f"there is no folder {path.parent}"
    if code == errno.EISDIR:
        return "it is a folder: name a file in it"
    if code == errno.ENXIO:  # a socket
        return "it is not a regular file"
    return getattr(error, "strerror", None) or str(error)


def _bounded(reading: Reading) -> Reading:
    """The tick without ring events if there are too many for a block; totals stay."""
    rings = reading.rings.rings
    if sum(len(ring.events) for ring in rings) <= _MAX_EVENTS:
        return reading
    without = tuple(
        ring._replace(events=NO_RECORDS, lost_events=ring.lost_events + len(ring.events))
        for ring in rings
    )
    return reading._replace(rings=replace(reading.rings, rings=without))
