"""Keeps what was read in a file, so that it can be looked at again."""

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
from gpumon.core.ring_format.events import NO_RECORDS
from gpumon.core.sample import Moment
from gpumon.errors import GpumonError, UsageError

_BLOCK_NS: Final = 5 * NS_PER_S
"""What is lost at most where the recorder is killed: shorter blocks pack worse."""
_BLOCK_BYTES: Final = 1 << 20
_MOST_EVENTS: Final = 200_000
"""More than a reader of rings brings in one tick; each takes up to 45 bytes of a block."""
_MODE: Final = 0o600
"""Names of processes and trainings are nobody else's."""


class RecordingWriter:
    """Writes blocks of whole lines, each in one go: what is written stays readable.

    Memory does not grow: a block is let go of once it is written. To keep and to close raise
    ``GpumonError`` where the disk takes no more (what was written so far is whole), or where
    somebody has removed the file.

    Attributes:
        path: The file.
        kept_count: Ticks kept so far, those not yet written included.
        written_bytes: Size of the file.
        elapsed_ns: From the first tick to the newest.

    Args:
        path: The file to make.
        replaces: Whether a recording that is there may be replaced; what is
            something else never is.

    Raises:
        UsageError: The path is no place for a recording.
        GpumonError: The file is there already or cannot be made; says why.
    """

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self.path = path
        self.kept_count = self.written_bytes = self.elapsed_ns = 0
        self._blocks: BlockWriter | None = None
        self._lines: list[bytes] = []
        self._line_bytes = 0
        self._first_ns = self._block_began_ns = self._whole_ns = 0
        self._was_there = self._is_broken_off = False
        self._descriptor = self._made(replaces=replaces)

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the recording; one that could not be written on stays as it is."""
        if self._is_broken_off:
            self._let_go()
        else:
            self.close("ended" if error is None else "failed")

    def keep(self, moment: Moment, header: RecordingHeader) -> None:
        """Keep one tick. The first one is in the file at once, others within some seconds.

        What the recording says of itself is written with the first tick, whose GPUs it then names.
        """
        at_ns = moment.tick.at_ns
        is_first = self._blocks is None
        if self._blocks is None:
            os.ftruncate(self._descriptor, 0)
            self._blocks = BlockWriter(replace(header, devices=devices_of([moment])))
            self._first_ns = at_ns
        if self._lines and at_ns - self._block_began_ns >= _BLOCK_NS:
            self._flush()
        if not self._lines:
            self._lines = self._blocks.begin_block()
            self._block_began_ns = at_ns
        line = self._blocks.line(_bounded(moment))
        self._lines.append(line)
        self._line_bytes += len(line)
        self.kept_count += 1
        self.elapsed_ns = at_ns - self._first_ns
        if is_first or self._line_bytes > _BLOCK_BYTES:
            self._flush()

    def close(self, why: str) -> None:
        """Write what is left, and a line that says that the recording was ended.

        Nothing is left of a recording without a tick. Safe to call twice.
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
            self._let_go()

    def _let_go(self) -> None:
        """Close the file as it is; one that holds nothing whole goes."""
        if self._descriptor >= 0:
            if not self.written_bytes and not self._was_there:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def _flush(self) -> None:
        """Write the block in one go; what the disk did not take of it goes again."""
        block = pack_block(b"".join(self._lines))
        self._lines, self._line_bytes = [], 0
        left = memoryview(block)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.written_bytes)
            self._is_broken_off = True
            raise GpumonError(self._full(error)) from error
        self.written_bytes += len(block)
        self._whole_ns = self.elapsed_ns
        if not os.fstat(self._descriptor).st_nlink:
            self._is_broken_off = True
            raise GpumonError(
                f"{self.path} was removed while it was written: nothing is left of it"
            )

    def _full(self, error: OSError) -> str:
        if not self.written_bytes:
            return f"cannot write {self.path}: {error.strerror}"
        return (
            f"cannot write any more to {self.path}: {error.strerror}: {self.written_bytes:,} bytes "
            f"of it are whole, about {seconds(self._whole_ns):,.0f} s: "
            f"`gpumon replay {self.path}` shows them"
        )

    def _made(self, *, replaces: bool) -> int:
        if str(self.path) == "-":
            raise UsageError("a recording cannot go to the standard output: name a file")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self._was_there = self.path.exists()
            descriptor = os.open(self.path, flags | (0 if replaces else os.O_EXCL), _MODE)
        except FileExistsError as error:
            what = "is a folder: name a file in it" if self.path.is_dir() else _TAKEN
            raise GpumonError(f"{self.path} {what}") from error
        except (OSError, ValueError) as error:
            raise GpumonError(f"cannot make {self.path}: {_reason(self.path, error)}") from error
        try:
            self._insist_on_file(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _insist_on_file(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise GpumonError(f"{self.path} is no regular file: a recording needs one")
        if status.st_size and os.pread(descriptor, len(MAGIC), 0) != MAGIC:
            raise GpumonError(f"{self.path} {_NO_RECORDING}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise GpumonError(f"{self.path} is being written by another gpumon") from error
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, _MODE)


_NO_RECORDING: Final = (
    "holds something else than a recording, which --force does not replace: name another file"
)
_TAKEN: Final = "is there already: name another file, or replace it with --force"


def _reason(path: Path, error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code == errno.ENOENT:
        return f"there is no folder {path.parent}"
    if code == errno.EISDIR:
        return "it is a folder: name a file in it"
    if code == errno.ENXIO:  # a socket
        return "it is no regular file"
    return getattr(error, "strerror", None) or str(error)


def _bounded(moment: Moment) -> Moment:
    """The moment as it fits a block: of rings that somebody filled, totals are kept and no more."""
    rings = moment.rings.rings
    if sum(len(ring.events) for ring in rings) <= _MOST_EVENTS:
        return moment
    without = tuple(
        replace(ring, events=NO_RECORDS, lost_events=ring.lost_events + len(ring.events))
        for ring in rings
    )
    return moment._replace(rings=replace(moment.rings, rings=without))
