"""What a cell of memory says: bytes, or nothing."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Final

MIB: Final = 1 << 20
BYTES_OF_UNIT: Final = MappingProxyType(
    {"b": 1, "byte": 1, "bytes": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": MIB, "mib": MIB,
     "m": MIB, "mibytes": MIB, "gb": 1 << 30, "gib": 1 << 30, "g": 1 << 30}
)  # fmt: skip
"""GPU tools count in powers of two, whatever they call them."""
_NUMBER: Final = re.compile(
    r"(\d{1,3}(?:,\d{3}){1,4}(?=[. A-Za-z]|$)|\d{1,15})(?:[.,](\d{0,9}))? ?([A-Za-z]{0,7})"
)
_MEMO_LIMIT: Final = 16_384


class MemoryCells:
    """Reads the memory cells of one log.

    Args:
        unit_bytes: What a bare number counts.
    """

    def __init__(self, unit_bytes: int = MIB) -> None:
        self._unit_bytes = unit_bytes
        self.known: dict[str, int | None] = {}

    def bytes_of(self, cell: str) -> int | None:
        """Bytes; ``None`` where the cell gives no answer.

        >>> MemoryCells().bytes_of(" 12MiB "), MemoryCells().bytes_of("-")
        (12582912, None)
        >>> MemoryCells().bytes_of("1.5 GB"), MemoryCells(1).bytes_of("4096")
        (1610612736, 4096)
        >>> MemoryCells(1).bytes_of("1,830"), MemoryCells(1).bytes_of("1830,0")
        (1830, 1830)
        """
        try:
            return self.known[cell]
        except KeyError:
            used = self._meaning_of(cell.strip())
            if len(self.known) >= _MEMO_LIMIT:
                self.known.clear()
            self.known[cell] = used
            return used

    def _meaning_of(self, text: str) -> int | None:
        found = _NUMBER.fullmatch(text)
        if found is None or not text.isascii():
            return None
        unit_bytes = BYTES_OF_UNIT.get(found[3].lower()) if found[3] else self._unit_bytes
        if unit_bytes is None:
            return None
        used = int(found[1].replace(",", "")) * unit_bytes
        if found[2]:
            used += int(found[2]) * unit_bytes // 10 ** len(found[2])
        return used
