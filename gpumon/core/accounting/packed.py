"""Values that are kept for long and seldom read, as bytes: a tenth of the memory or less.

Only what this process packed itself is unpacked again.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import zlib
from types import MappingProxyType
from typing import Any, Final

_LEVEL: Final = 1
"""Of zlib: the highest one takes three times as long and saves a tenth more."""


class _Pickler(pickle.Pickler):
    """Writes mappings that cannot be changed, which pickle refuses, as dictionaries."""

    dispatch_table = {  # noqa: RUF012 - as pickle names it
        **copyreg.dispatch_table,
        MappingProxyType: lambda mapping: (dict, (dict(mapping),)),
    }


class Packer:
    """Packs values that are much alike: of each, only what differs from the first takes room.

    One thread may pack, and any unpack what was packed before.
    """

    def __init__(self) -> None:
        self._first = b""

    def pack(self, value: object) -> bytes:
        """A value of core's types as bytes. Read-only mappings in it become dictionaries."""
        file = io.BytesIO()
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
        raw = file.getvalue()
        self._first = self._first or raw
        deflater = zlib.compressobj(_LEVEL, zdict=self._first)
        return deflater.compress(raw) + deflater.flush()

    def unpack(self, data: bytes) -> Any:  # noqa: ANN401 - whatever was packed
        """What ``pack`` was given: an equal value, with the same members of enumerations."""
        return pickle.loads(zlib.decompressobj(zdict=self._first).decompress(data))
