"""Reads a recording block by block, even if it was cut off or damaged."""

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
from gpumon.core.reading import Reading
from gpumon.core.wording import counted
from gpumon.errors import UnreadableLogError

_CHUNK_BYTES: Final = 1 << 20
_MAX_ATTEMPTS: Final = 1_000
"""False block starts tried in a row, so that a hostile file ends."""


def is_recording(path: str | Path) -> bool:
    """Whether a file starts like a recording. Never raises, never waits."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False  # a pipe's writer must not get a reader that closes it again
        with os.fdopen(_opened(path), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


class RecordingFile:
    """An open recording. Memory does not grow with the file.

    Attributes:
        name: Its path in messages.
        size_bytes: Its size when it was opened.
        read_count: Ticks read so far.
        read_ns: From the first of them to the last.
        damaged_count: Damaged or missing blocks so far.

    Raises:
        UnreadableLogError: It is no recording, has another schema, or its start is damaged.
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
            self._check_file(status.st_mode)
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
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def position_bytes(self) -> int:
        return self._position

    def readings(self) -> Iterator[Reading]:
        """Every tick of every complete block, in order. Can be called once.

        Raises:
            UnreadableLogError: The disk cannot be read.
        """
        yield from self._counted(self._first)
        while True:
            try:
                block = self._next_block()
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
                raise UnreadableLogError(f"{self.name}: {reason}") from error
            if block is None:
                return
            yield from self._counted(block)

    def troubles(self) -> tuple[str, ...]:
        """Sentences on damage, after all ticks have been read."""
        sentences = []
        if self.damaged_count:
            blocks = counted(self.damaged_count, "block is", "blocks are")
            sentences.append(
                f"{blocks} damaged or missing in {self.name}: that time counts as not observed."
            )
        if not self._is_ended:
            readings = counted(self.read_count, "reading", "readings")
            read = f"{readings} of {seconds(self.read_ns):,.0f} s could be read"
            torn = self._torn_bytes
            tail = f" in the middle of a block of {torn:,} bytes" if torn else ""
            sentences.append(f"{self.name} was cut off{tail}, or is still being written: {read}.")
        return tuple(sentences)

    def _counted(self, block: RecordedBlock) -> Iterator[Reading]:
        self._is_ended = block.is_end
        self.damaged_count += block.missing
        for reading in block.readings:
            at_ns = reading.tick.at_ns
            self._first_ns = at_ns if self._first_ns is None else self._first_ns
            self.read_count, self.read_ns = self.read_count + 1, at_ns - self._first_ns
            yield reading

    def _check_file(self, mode: int) -> None:
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
            raise UnreadableLogError(f"{self.name}: is {what}: name a recording")
        if not self.size_bytes:
            raise UnreadableLogError(
                f"{self.name}: is empty: its recording ended before the first reading"
            )
        head = os.pread(self._descriptor, HEAD_BYTES, 0)
        if not head.startswith(MAGIC):
            raise UnreadableLogError(
                f"{self.name}: is not a recording of `gpumon record`; for a log of nvidia-smi, "
                f"run `gpumon analyze {self.name}`"
            )

    def _first_block(self) -> RecordedBlock:
        try:
            block = self._block_here()
        except OtherSchemaError as error:
            raise UnreadableLogError(
                f"{self.name}: is a recording of schema {error}, but this version of gpumon reads "
                f"{RECORDING_SCHEMA}: use the version that recorded it, or a newer one"
            ) from error
        except (DamagedBlockError, MalformedError) as error:
            raise UnreadableLogError(
                f"{self.name}: its start is cut off or damaged ({error}): it cannot be replayed"
            ) from error
        if block is None or block.header is None:
            raise UnreadableLogError(f"{self.name}: has no header: it cannot be replayed")
        return block

    def _next_block(self) -> RecordedBlock | None:
        began = self._position
        for _ in range(_MAX_ATTEMPTS):
            try:
                return self._block_here()
            except (DamagedBlockError, MalformedError):  # noqa: PERF203  (few of them are damaged)
                found = self._find_block(self._position + 1)
                if found is None:
                    break
                self._position = found
        # The file may have grown since it was opened.
        self._torn_bytes = os.fstat(self._descriptor).st_size - began
        return None

    def _block_here(self) -> RecordedBlock | None:
        head = os.pread(self._descriptor, HEAD_BYTES, self._position)
        if not head:
            return None
        length = packed_length(head)
        member = b"" if length is None else os.pread(self._descriptor, length, self._position)
        if length is None or len(member) < length:
            raise DamagedBlockError("an incomplete block")
        block = self._reader.read(unpack_block(member))
        self._position += length
        return block

    def _find_block(self, start: int) -> int | None:
        while chunk := os.pread(self._descriptor, _CHUNK_BYTES, start):
            at = chunk.find(MAGIC)
            if at >= 0:
                return start + at
            if len(chunk) < len(MAGIC):
                return None
            start += len(chunk) - len(MAGIC) + 1
        return None


def _opened(path: str | Path) -> int:
    # Non-blocking: opening a pipe would wait for its writer.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
