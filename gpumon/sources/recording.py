"""A recording as a file: read block by block, however it was cut off or damaged."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import MalformedError
from gpumon.core.codecs.recording_codec import (
    HEAD_BYTES,
    MAGIC,
    RECORDING_SCHEMA,
    BlockReader,
    DamagedBlockError,
    OtherSchemaError,
    RecordedBlock,
    RecordingHeader,
    packed_length,
    unpack_block,
)
from gpumon.core.sample import Moment
from gpumon.core.wording import counted
from gpumon.errors import UnreadableLogError

_CHUNK_BYTES: Final = 1 << 20
_MOST_LOOKS: Final = 1_000
"""So many false beginnings in a row are looked at: a file made of them must not take for ever."""


def is_recording(path: str | Path) -> bool:
    """Whether a file begins as a recording does. Never raises, never waits."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False  # whoever writes to a pipe must not meet a reader that goes again
        with os.fdopen(_opened(path), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


class RecordingFile:
    """One recording, opened. Memory does not grow with the file.

    Attributes:
        name: What to call it in sentences.
        size_bytes: How large it was when it was opened.
        header: What it says of itself.
        read_count: Ticks read so far.
        read_ns: From the first of them to the last.
        damaged_count: Blocks that had to be left out so far.

    Raises:
        UnreadableLogError: It is no recording, one of another schema, or its
            beginning is damaged; says which.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        try:
            self._descriptor = _opened(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnreadableLogError(f"{self.name}: cannot be read: {reason}") from error
        self.read_count = self.read_ns = self.damaged_count = 0
        self._first_ns: int | None = None
        self._position = 0
        self._torn_bytes = 0
        self._is_ended = False
        self._reader = BlockReader()
        try:
            status = os.fstat(self._descriptor)
            self.size_bytes = status.st_size
            self._insist_on_recording(status.st_mode)
            self._first = self._first_block()
        except OSError as error:
            self.close()
            raise UnreadableLogError(f"{self.name}: cannot be read: {error.strerror}") from error
        except BaseException:
            self.close()
            raise
        assert self._first.header is not None
        self.header: RecordingHeader = self._first.header

    def __enter__(self) -> RecordingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file. Safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def position_bytes(self) -> int:
        """How much of the file was read so far."""
        return self._position

    def moments(self) -> Iterator[Moment]:
        """Every tick of every block that is whole, in order. To be asked for once.

        Raises:
            UnreadableLogError: The disk cannot be read.
        """
        yield from self._taken(self._first)
        while True:
            try:
                block = self._next_block()
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
                raise UnreadableLogError(f"{self.name}: {reason}") from error
            if block is None:
                return
            yield from self._taken(block)

    def troubles(self) -> tuple[str, ...]:
        """What is to be known of the file, as sentences, once all of it has been read."""
        told = []
        if self.damaged_count:
            blocks = counted(self.damaged_count, "block is", "blocks are")
            told.append(
                f"{blocks} damaged or missing in {self.name}: that time counts as not observed."
            )
        if not self._is_ended:
            readings = counted(self.read_count, "reading", "readings")
            read = f"{readings} of {seconds(self.read_ns):,.0f} s could be read"
            tail = f" in the middle of a block of {self._torn_bytes:,} bytes" * bool(
                self._torn_bytes
            )
            told.append(
                f"{self.name} was cut off{tail}, or is still being written: {read}, "
                "all that was whole."
            )
        return tuple(told)

    def _taken(self, block: RecordedBlock) -> Iterator[Moment]:
        self._is_ended = block.is_end
        self.damaged_count += block.missing
        for moment in block.moments:
            at_ns = moment.tick.at_ns
            self._first_ns = at_ns if self._first_ns is None else self._first_ns
            self.read_count, self.read_ns = self.read_count + 1, at_ns - self._first_ns
            yield moment

    def _insist_on_recording(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            raise UnreadableLogError(f"{self.name}: is {what}: name a recording")
        if not self.size_bytes:
            raise UnreadableLogError(
                f"{self.name}: is empty: its recording ended before the first reading"
            )
        head = os.pread(self._descriptor, HEAD_BYTES, 0)
        if not head.startswith(MAGIC):
            raise UnreadableLogError(
                f"{self.name}: is no recording of `gpumon record`; the report of a log that "
                f"nvidia-smi wrote: `gpumon analyze {self.name}`"
            )

    def _first_block(self) -> RecordedBlock:
        try:
            block = self._block_here()
        except OtherSchemaError as error:
            raise UnreadableLogError(
                f"{self.name}: is a recording of schema {error}, and this version of gpumon reads "
                f"{RECORDING_SCHEMA}: use the version that recorded it, or a newer one"
            ) from error
        except (DamagedBlockError, MalformedError) as error:
            raise UnreadableLogError(
                f"{self.name}: its beginning is cut off or damaged ({error}): "
                "nothing of it can be replayed"
            ) from error
        if block is None or block.header is None:
            raise UnreadableLogError(f"{self.name}: has no header: nothing of it can be replayed")
        return block

    def _next_block(self) -> RecordedBlock | None:
        """The next whole block; ``None`` where there is none any more."""
        began = self._position
        for _ in range(_MOST_LOOKS):
            try:
                return self._block_here()
            except (DamagedBlockError, MalformedError):  # noqa: PERF203  (few of them are damaged)
                found = self._look_for_block(self._position + 1)
                if found is None:
                    break
                self._position = found
        # A file that is still written has grown since it was opened.
        self._torn_bytes = os.fstat(self._descriptor).st_size - began
        return None

    def _block_here(self) -> RecordedBlock | None:
        """The block that begins here; the position is behind it then."""
        head = os.pread(self._descriptor, HEAD_BYTES, self._position)
        if not head:
            return None
        length = packed_length(head)
        member = b"" if length is None else os.pread(self._descriptor, length, self._position)
        if length is None or len(member) < length:
            raise DamagedBlockError("a block that is not whole")
        block = self._reader.read(unpack_block(member))
        self._position += length
        return block

    def _look_for_block(self, start: int) -> int | None:
        """Where the next block begins, at ``start`` or later."""
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES, start):
            at = chunk.find(MAGIC)
            if at >= 0:
                return start + at
            if len(chunk) < len(MAGIC):
                return None
            start += len(chunk) - len(MAGIC) + 1
        return None


def _opened(path: str | Path) -> int:
    # A pipe without a writer would be waited for.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
