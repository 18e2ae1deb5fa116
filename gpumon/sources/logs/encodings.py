"""Encodings of logs, blocks of zero bytes, and binary files."""

from __future__ import annotations

import codecs
import re
from typing import Final, Protocol

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
