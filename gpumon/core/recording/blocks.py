"""A recording's bytes: gzip members one after the other, each a whole block of lines.

So ``zcat`` reads a recording, and what was written before a process was killed
stays readable. Each member tells its own length in gzip's extra field: a
reader finds the next block where one is damaged, and knows a recording by its
first bytes. Nothing here is more than one block in memory.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

MAGIC: Final = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x08\0GM\x04\0"
"""Gzip, with one extra field of 4 bytes called ``GM``: how long the member is."""
HEAD_BYTES: Final = len(MAGIC) + 4
MAX_PACKED_BYTES: Final = 16 << 20
MAX_BLOCK_BYTES: Final = 16 << 20
"""Bytes of a block's text. A block that claims to hold more is not unpacked to its end."""

_LENGTH: Final = struct.Struct("<I")
_TRAILER: Final = struct.Struct("<II")
_LEAST_BYTES: Final = HEAD_BYTES + 2 + _TRAILER.size
_LEVEL: Final = 6


class DamagedBlockError(ValueError):
    """Bytes that are no whole block, or one that is larger than any."""


def pack_block(text: bytes) -> bytes:
    """A block as one gzip member.

    Raises:
        DamagedBlockError: It is larger than a reader takes.
    """
    if len(text) > MAX_BLOCK_BYTES:
        raise DamagedBlockError("a block beyond all bounds")
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    packed = packer.compress(text) + packer.flush()
    trailer = _TRAILER.pack(zlib.crc32(text), len(text))
    length = HEAD_BYTES + len(packed) + len(trailer)
    return MAGIC + _LENGTH.pack(length) + packed + trailer


def packed_length(head: bytes) -> int | None:
    """How long the member is that begins so; ``None`` where none does."""
    if len(head) < HEAD_BYTES or not head.startswith(MAGIC):
        return None
    (length,) = _LENGTH.unpack_from(head, len(MAGIC))
    return length if _LEAST_BYTES <= length <= MAX_PACKED_BYTES else None


def unpack_block(member: bytes) -> bytes:
    """The text of a block.

    Raises:
        DamagedBlockError: It is not whole, or larger than any that is written.
    """
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    body = member[HEAD_BYTES : -_TRAILER.size]
    try:
        text = unpacker.decompress(body, MAX_BLOCK_BYTES + 1)
    except zlib.error as error:
        raise DamagedBlockError("packed data that is damaged") from error
    if len(text) > MAX_BLOCK_BYTES:
        raise DamagedBlockError("a block beyond all bounds")
    checks = _TRAILER.unpack_from(member, len(member) - _TRAILER.size)
    if not unpacker.eof or unpacker.unused_data or checks != (zlib.crc32(text), len(text)):
        raise DamagedBlockError("a block that does not fit its check sum")
    return text
