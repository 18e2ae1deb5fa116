"""What a cell of memory says: bytes, or nothing."""

from __future__ import annotations

import re
from typing import Final

_MIB: Final = 1 << 20
_NUMBER: Final = re.compile(r"(\d{1,9})(?:\.\d{0,9})?(?: ?(?:Mi?B|MiBytes))?", re.ASCII)
_MEMO_LIMIT: Final = 16_384


class MemoryCells:
    """Reads the memory cells of one log, which count MiB, whatever their unit is called."""

    def __init__(self) -> None:
        self._known: dict[str, int | None] = {}

    def bytes_of(self, cell: str) -> int | None:
        """Bytes; ``None`` where the cell gives no answer.

        >>> MemoryCells().bytes_of(" 12MiB "), MemoryCells().bytes_of("-")
        (12582912, None)
        """
        try:
            return self._known[cell]
        except KeyError:
            found = _NUMBER.fullmatch(cell.strip())
            used = int(found[1]) * _MIB if found else None
            if len(self._known) < _MEMO_LIMIT:
                self._known[cell] = used
            return used
