"""A log as lines of text, whatever it was packed and encoded in, and lines with their numbers."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, BinaryIO, Final, Protocol, cast

from gpumon.errors import UnreadableLogError

STANDARD_INPUT: Final = "-"
MAX_PIECE: Final = 1 << 16
"""Characters of a line that come at once; the rest of a longer line comes in further pieces."""
_HEAD_LINES: Final = 512
"""Lines looked at before the first is read: to know the format, the header or the columns."""
_HEAD_SIGNS: Final = 1 << 18
_HEAD_BYTES: Final = 4096
_GZIP_MAGIC: Final = b"\x1f\x8b"
_PACKED: Final = MappingProxyType(
    {
        b"PK\x03\x04": "a zip archive",
        b"PK\x05\x06": "a zip archive",
        b"BZh": "packed with bzip2",
        b"\xfd7zXZ\0": "packed with xz",
        b"\x28\xb5\x2f\xfd": "packed with zstd",
        b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    }
)
FREE_BYTES: Final = 1 << 28
FREE_LINES: Final = 1 << 23
"""So much may be unpacked from however little."""
_MOST_GROWTH: Final = 500
"""The same table of idle GPUs again and again packs to less than a hundredth."""
_MOST_LINES_A_BYTE: Final = 5
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LOOKS: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\([A-Z0-9])|\r")
_MAX_ODD_SHARE: Final = 0.10
"""Share of control and undecodable characters from which on a file is no text."""


class LogText:
    """One opened log. Reads as a stream: memory does not grow with the file.

    Gzip is seen by its first bytes, the encoding by its byte order mark or by
    where the zero bytes are; ``-`` is the standard input. Of a file that
    grows, what was there when it was opened is read, up to its last whole line.

    Args:
        standard_input: Its bytes, where they were opened already.
        name: ``None``: as its path.

    Attributes:
        damage: Where the data broke off, once ``lines_there_are`` met it.
        archive: The bytes of a tar archive, where it is one: then it has no lines.

    Raises:
        UnreadableLogError: Missing, a directory, not readable, empty or
            binary; while reading: packed data that ends too early.
    """

    def __init__(
        self, path: str, standard_input: Stream | None = None, *, name: str | None = None
    ) -> None:
        self.name = name or ("standard input" if path == STANDARD_INPUT else path)
        self._file: BinaryIO | None = None
        self.archive: Stream | None = None
        self.damage: UnreadableLogError | None = None
        raw = self._open(path, standard_input)
        self.size_bytes = self._size()
        try:
            self._text = self._decoded(_Counted(raw, self.size_bytes or sys.maxsize))
        except (OSError, EOFError, zlib.error) as error:
            self.close()
            raise self._damaged(error, 0) from error
        except UnreadableLogError:
            self.close()
            raise

    def __enter__(self) -> LogText:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what was opened here; the standard input stays open."""
        if self._file is not None:
            self._file.close()

    def position_bytes(self) -> int | None:
        """How much of the file was read so far; ``None`` for a pipe."""
        opened = self._file
        return opened.tell() if opened is not None and opened.seekable() else None

    def lines(self) -> Iterator[str]:
        """Every line, its line end included: always one newline.

        A line of more than ``MAX_PIECE`` characters comes in pieces of that
        many; only its last piece ends in a newline.
        """
        number = 0
        try:
            for piece in iter(partial(self._text.readline, MAX_PIECE), ""):
                if piece[-1] == "\n":
                    number += 1
                elif len(piece) < MAX_PIECE and self.has_grown():
                    return  # half a line: the other half was written later
                yield piece
        except (OSError, EOFError, zlib.error, UnicodeError) as error:
            raise self._damaged(error, number) from error

    def lines_there_are(self) -> Iterator[str]:
        """As ``lines``, and where the data break off they end; ``damage`` then says so."""
        try:
            yield from self.lines()
        except UnreadableLogError as error:
            self.damage = error

    def _open(self, path: str, standard_input: Stream | None) -> Stream:
        if path == STANDARD_INPUT:
            return standard_input or sys.stdin.buffer
        try:
            self._file = Path(path).open("rb")  # noqa: SIM115  (closed by close)
        except IsADirectoryError as error:
            raise UnreadableLogError(f"{path}: is a directory; name the log files in it") from error
        except FileNotFoundError as error:
            raise UnreadableLogError(f"{path}: no such file") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnreadableLogError(f"{path}: cannot be opened: {reason}") from error
        return self._file

    def _size(self) -> int | None:
        """Bytes of the file as it was opened; ``None`` for a pipe, and where nobody knows."""
        if self._file is None:
            return None
        status = os.fstat(self._file.fileno())
        return (status.st_size or None) if stat.S_ISREG(status.st_mode) else None

    def has_grown(self) -> bool:
        """Whether something was written to the file since it was opened."""
        return self.size_bytes is not None and (self._size() or 0) > self.size_bytes

    def _decoded(self, raw: Stream) -> io.TextIOWrapper:
        head, stream = _peek(raw)
        if head.startswith(_GZIP_MAGIC):
            head, stream = _peek(_Unpacked(stream))
        encoding = _encoding_of(head)
        if not head:
            raise UnreadableLogError(f"{self.name}: is empty")
        if _begins_tar(head):
            self.archive = stream
            return io.TextIOWrapper(io.BytesIO())
        for magic, kind in _PACKED.items():
            if head.startswith(magic):
                raise UnreadableLogError(
                    f"{self.name}: is {kind}, which gpumon does not unpack; it reads gzip and tar: "
                    "unpack it, and name the logs in it"
                )
        if encoding is None or _is_binary(head, encoding):
            raise UnreadableLogError(
                f"{self.name}: is binary, not text; gpumon reads what monitors print or save as "
                "text: tables, CSV and JSON, gzip or not"
            )
        return io.TextIOWrapper(stream, encoding=encoding, errors="replace")

    def _damaged(self, error: Exception, after_line: int) -> UnreadableLogError:
        if isinstance(error, BrokenOffError):
            what = str(error)
        elif isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
            what = "the gzip data is cut short or damaged"
        else:
            what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        where = f"after line {after_line}" if after_line else "within line 1"
        return UnreadableLogError(f"{self.name}: {what} {where}")


class BrokenOffError(EOFError):
    """What the bytes of a log come from broke off; the message says what and how."""


class Stream(Protocol):
    """Bytes, read once from front to end."""

    def read(self, count: int, /) -> bytes:
        """Up to so many bytes; none at the end."""
        ...


class _Rejoined(io.RawIOBase):
    """A stream that cannot seek, with the bytes that were looked at put back in front."""

    def __init__(self, head: bytes, rest: Stream) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if self._head:
            data, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        else:
            data = self._rest.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Unpacked:
    """What gzip packed, up to more than any log can be packed to."""

    def __init__(self, packed: Stream) -> None:
        self._packed = _Counted(packed)
        self._bytes = self._lines = 0
        self._file = gzip.GzipFile(fileobj=cast("IO[bytes]", self._packed), mode="rb")

    def read(self, count: int, /) -> bytes:
        data = self._file.read(count)
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        most_lines = max(FREE_LINES, _MOST_LINES_A_BYTE * self._packed.bytes_read)
        if (
            self._bytes > max(FREE_BYTES, _MOST_GROWTH * self._packed.bytes_read)
            or self._lines > most_lines
        ):
            raise OSError("it unpacks to more than any log of its size does")
        return data


class _Counted:
    """A stream that knows how much was read of it.

    A file is read up to the size it had: whatever is written to it meanwhile is not.
    """

    def __init__(self, stream: Stream, size_bytes: int = sys.maxsize) -> None:
        self._stream = stream
        self._size_bytes = size_bytes
        self.bytes_read = 0

    def read(self, count: int) -> bytes:
        data = self._stream.read(min(count, self._size_bytes - self.bytes_read))
        self.bytes_read += len(data)
        return data


def _peek(stream: Stream) -> tuple[bytes, io.BufferedReader]:
    head = stream.read(_HEAD_BYTES)
    return head, io.BufferedReader(_Rejoined(head, stream), buffer_size=1 << 16)


def _begins_tar(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def _encoding_of(head: bytes) -> str | None:
    """Name of the encoding; ``None``: no text in any that gpumon knows."""
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    if b"\0" not in head:
        return "utf-8"
    # PowerShell's redirection writes UTF-16; in a log of ASCII every other byte is then zero.
    pairs = len(head) // 2
    if head[1::2].count(0) > 0.9 * pairs and head[::2].count(0) == 0:
        return "utf-16-le"
    if head[::2].count(0) > 0.9 * pairs and head[1::2].count(0) == 0:
        return "utf-16-be"
    # A few are what a crash leaves of lines that were not on the disk yet.
    return "utf-8" if head.count(0) <= _MAX_ODD_SHARE * len(head) else None


def _is_binary(head: bytes, encoding: str) -> bool:
    text = head.decode(encoding, errors="replace")
    odd = sum(1 for sign in text if sign == "\ufffd" or (sign < " " and sign not in "\t\r\n\f\x1b"))
    return odd > _MAX_ODD_SHARE * len(text)


def head_of(lines: Iterator[str]) -> list[str]:
    """The first lines of a log, few enough to be held."""
    head: list[str] = []
    signs = 0
    for line in lines:
        head.append(line)
        signs += len(line)
        if len(head) >= _HEAD_LINES or signs >= _HEAD_SIGNS:
            break
    return head


def numbered_lines(pieces: Iterator[str]) -> Iterator[tuple[int, str]]:
    r"""Each line with its number, from 1; of one in pieces only the first piece.

    >>> list(numbered_lines(iter(["a\n", "very ", "long\n", "b"])))
    [(1, 'a\n'), (2, 'very '), (3, 'b')]
    """
    number = 0
    is_within = False
    for piece in pieces:
        if not is_within:
            number += 1
            yield number, piece
        is_within = not piece.endswith("\n")


def without_colours(line: str) -> str:
    """A line as a terminal shows it, without what only changes its looks."""
    return _LOOKS.sub("", line) if "\x1b" in line or "\r" in line else line
