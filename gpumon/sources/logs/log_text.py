"""A log as lines of text, however it was packed and encoded."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Protocol, TextIO

from gpumon.core.wording import counted
from gpumon.errors import UnreadableLogError
from gpumon.sources.live_input import FollowedFile, LivePipe, LiveReading, is_regular

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HIGH: Final = re.compile(rb"[\x80-\xff]+")
_ODD_BYTES: Final = bytes({*range(32), *range(0x80, 0xA0)} - {*b"\t\r\n\f\x1b"})
_ZEROS: Final = re.compile(rb"(\n?)\0+")
_MAX_ZEROS: Final = 1 << 26
"""Give up after this many zero bytes at the start, as of ``/dev/zero``."""
_MAX_ODD_SHARE: Final = 0.10
"""A file with a larger share of control and undecodable characters is binary."""


class Stream(Protocol):
    """Bytes, read once from start to end."""

    def read(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes; none at the end."""
        ...


class WithoutZeros:
    """A stream without blocks of zero bytes: a line that one cuts ends in a single zero.

    Args:
        count: Zero bytes that were skipped before.

    Attributes:
        count: Zero bytes that were skipped.
    """

    def __init__(self, stream: Stream, count: int = 0) -> None:
        self._stream = stream
        self._ready = b""
        self._is_line_start = True
        self._has_begun = False
        self.count = count

    def read(self, count: int, /) -> bytes:
        """Return up to ``count`` bytes; none at the end, or if nothing but zeros comes."""
        while not self._ready:
            data = self._stream.read(count)
            if not data or (self.count > _MAX_ZEROS and not self._has_begun):
                return b""
            self._ready = self._cleaned(data)
        data, self._ready = self._ready[:count], self._ready[count:]
        return data

    def _cleaned(self, data: bytes) -> bytes:
        zeros = data.count(b"\0")
        if zeros:
            self.count += zeros
            if self._is_line_start:
                data = data.lstrip(b"\0")
            data = _ZEROS.sub(lambda found: found[1] or b"\0\n", data)
        if data:
            self._has_begun = True
            self._is_line_start = data.endswith(b"\n")
        return data


def encoding_of(head: bytes) -> str:
    """Return the encoding, by a byte order mark, by zero bytes, or by bytes that are not UTF-8.

    >>> encoding_of("time,Auslastung".encode("utf-16-le")), encoding_of("°C".encode("cp1252"))
    ('utf-16-le', 'cp1252')
    >>> encoding_of("°C".encode()), encoding_of("显卡利用率".encode("gb18030"))
    ('utf-8', 'gb18030')
    """
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    # PowerShell's redirection writes UTF-16; in a log of ASCII every other byte is then zero.
    pairs = len(head) // 2
    odd, even = head[1::2].count(0), head[::2].count(0)
    if max(odd, even) > 0.5 * pairs and min(odd, even) < 0.1 * pairs:
        return "utf-16-le" if odd > even else "utf-16-be"
    text = head.decode("utf-8", errors="replace")
    letters, bad = sum(sign > "\x7f" for sign in text), text.count("\ufffd")
    bad -= text.endswith("\ufffd")  # a letter may be cut where the head ends
    return "utf-8" if not bad or 2 * bad < letters else _legacy_of(head)


def _legacy_of(head: bytes) -> str:
    """Return the encoding of bytes that are not UTF-8: Chinese in pairs, or cp1252."""
    runs = [len(run) for run in _HIGH.findall(head)]
    if sum(size % 2 == 0 for size in runs) < 0.9 * len(runs):
        return "cp1252"
    try:
        codecs.getincrementaldecoder("gb18030")().decode(head)
    except UnicodeDecodeError:
        return "cp1252"
    return "gb18030"


def is_binary(head: bytes, encoding: str) -> bool:
    """Return whether the first bytes of a file are not text."""
    if encoding == "cp1252":
        odd = len(head) - len(head.translate(None, _ODD_BYTES))
        return odd > _MAX_ODD_SHARE * len(head)
    text = head.decode(encoding, errors="replace")
    odd = sum(1 for sign in text if sign == "\ufffd" or (sign < " " and sign not in "\t\r\n\f\x1b"))
    return odd > _MAX_ODD_SHARE * len(text)


STANDARD_INPUT: Final = "-"
MAX_PIECE: Final = 1 << 16
"""Longer lines come in pieces of this many characters."""
_HEAD_LINES: Final = 512
"""Lines that determine the format, the header and the columns."""
_HEAD_CHARACTERS: Final = 1 << 18
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
        b"ustar": "a tar archive",
    }
)
_TAR_AT: Final = 257
"""Offset of tar's magic bytes."""
_LOOKS: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\([A-Z0-9])|\r")


class LogText:
    """One opened log, read as a stream: memory does not grow with the file.

    Gzip and the encoding are found from the first bytes; ``-`` is the standard input. A file that
    grows is read up to the last complete line it had when it was opened, unless it is followed.
    Blocks of zero bytes, as a crash leaves them, are skipped; a line that one cuts ends in a zero.

    Args:
        standard_input: Its bytes, if they are open already.
        name: ``None``: as its path.
        live: Can end a pipe or a followed file.
        follows: Whether a growing file is read on until ``live`` ends it.

    Attributes:
        damage: Where the data broke off, once ``available_lines`` reached it.

    Raises:
        UnreadableLogError: Missing, a directory, not readable, empty or binary; while reading:
            packed data that ends too early.
    """

    def __init__(
        self,
        path: str,
        standard_input: Stream | None = None,
        *,
        name: str | None = None,
        live: LiveReading | None = None,
        follows: bool = False,
    ) -> None:
        self.name = name or ("standard input" if path == STANDARD_INPUT else path)
        self._file: BinaryIO | None = None
        self._followed: FollowedFile | None = None
        self._live = live
        self._is_live = False
        self.damage: UnreadableLogError | None = None
        self._zeros: WithoutZeros | None = None
        raw = self._open(path, standard_input, follows=follows)
        self.size_bytes = self._size()
        try:
            self._text = self._decoded(_UpToItsSize(raw, self.size_bytes or sys.maxsize))
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
        if self._followed is not None:
            self._followed.close()

    @property
    def is_live(self) -> bool:
        """Whether it is still being written, so that its size is unknown."""
        return self._is_live

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the bytes that were read."""
        notes = []
        if self._zeros is not None and self._zeros.count:
            notes.append(
                f"Skipped {self._zeros.count:,} zero bytes, as a crash leaves them: whatever was "
                "to stand there is lost."
            )
        if self.new_files:
            times = counted(self.new_files, "time", "times")
            then = ": read on with the new one" if self.damage is None else ""
            notes.append(f"The file was replaced or truncated {times} while it was followed{then}.")
        return tuple(notes)

    @property
    def new_files(self) -> int:
        """How often a followed file was replaced so far."""
        return 0 if self._followed is None else self._followed.new_files

    def position_bytes(self) -> int | None:
        """Return how much of the file was read so far; ``None`` for a pipe."""
        opened = self._file
        return opened.tell() if opened is not None and opened.seekable() else None

    def lines(self) -> Iterator[str]:
        """Yield every line, ending in exactly one newline.

        A line of more than ``MAX_PIECE`` characters comes in pieces without newlines but the last.
        """
        number = 0
        try:
            while True:
                for piece in iter(partial(self._text.readline, MAX_PIECE), ""):
                    if piece[-1] == "\n":
                        number += 1
                    elif len(piece) < MAX_PIECE and (self._followed or self.has_grown()):
                        break  # an incomplete line
                    yield piece
                if self._followed is None or not self._enter_next(self._followed):
                    return
        except (OSError, EOFError, zlib.error, UnicodeError) as error:
            raise self._damaged(error, number) from error

    def available_lines(self) -> Iterator[str]:
        """Yield ``lines`` up to where the data break off, and set ``damage`` there."""
        try:
            yield from self.lines()
        except UnreadableLogError as error:
            self.damage = error

    def _enter_next(self, followed: FollowedFile) -> bool:
        """Return whether another file has replaced the followed one; its lines come next."""
        if not followed.next_file():
            return False
        try:
            self._text = self._decoded(followed)
        except UnreadableLogError:
            if self.has_grown():  # ended before the new file had a line
                return False
            raise
        return True

    def _open(self, path: str, standard_input: Stream | None, *, follows: bool) -> Stream:
        live = self._live
        if path == STANDARD_INPUT:
            if live is not None and standard_input is None and _has_descriptor(sys.stdin):
                self._is_live = True
                return LivePipe(sys.stdin.fileno(), live)
            return standard_input or sys.stdin.buffer
        try:
            if live is not None and follows and is_regular(path):
                self._followed = FollowedFile(path, live)
                self._is_live = self._followed.is_there
                if self._is_live:
                    return self._followed
            self._file = Path(path).open("rb")  # noqa: SIM115  (closed by close)
        except IsADirectoryError as error:
            raise UnreadableLogError(f"{path}: is a directory; name the log files in it") from error
        except FileNotFoundError as error:
            raise UnreadableLogError(f"{path}: no such file") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UnreadableLogError(f"{path}: cannot be opened: {reason}") from error
        if live is not None and not is_regular(path):
            self._is_live = True
            return LivePipe(self._file.fileno(), live)
        return self._file

    def _size(self) -> int | None:
        """Size of the file as it was opened; ``None`` for a pipe, and if unknown."""
        if self._file is None:
            return None
        status = os.fstat(self._file.fileno())
        return (status.st_size or None) if stat.S_ISREG(status.st_mode) else None

    def has_grown(self) -> bool:
        """Return whether more was written than is read."""
        if self._is_live and self._live is not None and self._live.ended:
            return True
        return self.size_bytes is not None and (self._size() or 0) > self.size_bytes

    def _decoded(self, raw: Stream) -> io.TextIOWrapper:
        head, stream = _peek(raw, is_live=self._is_live)
        if self._followed is not None and head.startswith(_GZIP_MAGIC):
            raise UnreadableLogError(
                f"{self.name}: is packed, and a packed file does not grow by lines: leave --follow "
                "out"
            )
        if head.startswith(_GZIP_MAGIC):
            head, stream = _peek(gzip.GzipFile(fileobj=stream))
        if not head:
            raise UnreadableLogError(f"{self.name}: is empty")
        for magic, kind in _PACKED.items():
            if magic in (head[: len(magic)], head[_TAR_AT : _TAR_AT + len(magic)]):
                raise UnreadableLogError(
                    f"{self.name}: is {kind}, which gpumon does not unpack; it reads gzip: unpack "
                    "it, and name the logs in it"
                )
        encoding = encoding_of(head)
        if not encoding.startswith("utf-16"):
            before = 0 if self._zeros is None else self._zeros.count  # in a file that was replaced
            self._zeros = WithoutZeros(stream.raw, before)  # which gives what there is
            head, stream = _peek(self._zeros, is_live=self._is_live)
            encoding = encoding_of(head)
        if not head or is_binary(head, encoding):
            raise UnreadableLogError(
                f"{self.name}: is binary, not text; gpumon reads what monitors print or save as "
                "text: tables, CSV and JSON, gzip or not"
            )
        return io.TextIOWrapper(stream, encoding=encoding, errors="replace")

    def _damaged(self, error: Exception, after_line: int) -> UnreadableLogError:
        if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
            what = "the gzip data is cut short or damaged"
        else:
            what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        where = f"after line {after_line}" if after_line else "within line 1"
        return UnreadableLogError(f"{self.name}: {what} {where}")


class _Rejoined(io.RawIOBase):
    """A stream that cannot seek, with the bytes that were peeked at put back in front."""

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


class _UpToItsSize:
    """A file up to the size it had: later writes are not read."""

    def __init__(self, stream: Stream, size_bytes: int) -> None:
        self._stream = stream
        self._left = size_bytes

    def read(self, count: int, /) -> bytes:
        data = self._stream.read(min(count, self._left))
        self._left -= len(data)
        return data


def _peek(stream: Stream, *, is_live: bool = False) -> tuple[bytes, io.BufferedReader]:
    head = stream.read(_HEAD_BYTES)
    packed = (_GZIP_MAGIC, *_PACKED)
    while is_live and 0 < len(head) < _HEAD_BYTES and b"\n" not in head:
        # A live input returns what is available.
        more = b"" if head.startswith(packed) else stream.read(_HEAD_BYTES - len(head))
        if not more:
            break
        head += more
    return head, io.BufferedReader(_Rejoined(head, stream), buffer_size=1 << 16)


def _has_descriptor(stream: TextIO) -> bool:
    try:
        stream.fileno()
    except (OSError, ValueError):
        return False
    return True


def head_of(lines: Iterator[str]) -> list[str]:
    """Return the first lines of a log, few enough for memory."""
    head: list[str] = []
    characters = 0
    for line in lines:
        head.append(line)
        characters += len(line)
        if len(head) >= _HEAD_LINES or characters >= _HEAD_CHARACTERS:
            break
    return head


def without_colours(line: str) -> str:
    """Return a line without the escape sequences that only change its looks."""
    return _LOOKS.sub("", line) if "\x1b" in line or "\r" in line else line
