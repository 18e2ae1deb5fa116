"""What a utilisation cell says: a share of the time, no answer, or nothing that can be.

Percent or share, where no heading says it: the first rows tell, and later ones must agree.

What a cell of memory says: bytes, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from gpumon.errors import UnreadableLogError

_NUMBER: Final = re.compile(
    r"([-+]?(?:\d{1,9}(?:[.,]\d{0,17})?|nan|inf(?:inity)?))\s*(%?)", re.I | re.A
)
_NO_ANSWER: Final = re.compile(
    r"\[.*\]|n/?a|none|null|-|err!?|(?:unknown )?error|not (?:supported|found|available)"
    r"|(?:field|gpu) (?:not found|is lost)|",
    re.I,
)
_MEMO_LIMIT: Final = 16_384
_ROUNDING: Final = 1e-9


class Refusal(str, Enum):
    """Why a line cannot be used, as the report says it."""

    NO_ANSWER = "without an answer of the GPU, such as [N/A]"
    IMPOSSIBLE = "with a utilisation no GPU can have (over 100 %, negative or not a number)"
    NO_NUMBER = "with something else than a utilisation in its column"
    CUT_SHORT = "without the unit the other lines have"
    WIDTH = "with more or fewer columns than the header"
    STAMP = "with a time that cannot be read"
    NOBODY = "of no GPU that can be told from the others"
    HEADER = "of a table without a utilisation column"
    UNHEADED = "before a header that can be read and tells the columns"
    CLOCK = "of a table that tells the time in another way than the first"
    CUT_TABLE = "of a table that was cut off"
    FOREIGN = "that are no part of such a log"
    TOO_LONG = "too long to be a part of such a log"
    DAMAGED_JSON = "of JSON that is cut short, damaged or no JSON at all"
    TWICE = "of a time that the same series told of before"
    QUOTE = "with a quote that is never closed"
    DRIVER = "in which nvidia-smi says that it could not ask the GPU"


class UtilizationCells:
    """Reads the utilisation cells of one log, which share a unit.

    Args:
        is_percent: Percent, else ratios 0 to 1.

    Attributes:
        ratios: Cells that were read before, as written, and what they mean.
    """

    def __init__(self, *, is_percent: bool) -> None:
        self._scale = 100.0 if is_percent else 1.0
        self._has_sign: bool | None = None
        self.ratios: dict[str, float] = {}
        self._refused: dict[str, Refusal] = {}

    def read(self, cell: str) -> float | Refusal:
        """The ratio, 0 to 1, or why there is none."""
        known = self.ratios.get(cell)
        if known is not None:
            return known
        refusal = self._refused.get(cell)
        if refusal is not None:
            return refusal
        meaning = self._meaning_of(cell.strip())
        if isinstance(meaning, Refusal):
            if len(self._refused) < _MEMO_LIMIT:
                self._refused[cell] = meaning
        elif len(self.ratios) < _MEMO_LIMIT:
            self.ratios[cell] = meaning
        return meaning

    def read_whole(self, cell: str) -> float | Refusal:
        """As ``read``, of a cell that was not cut off, with or without the others' unit."""
        known = self.read(cell)
        if known is not Refusal.CUT_SHORT:
            return known
        ratio = possible_ratio(_number(cell.strip()) / self._scale)
        if not isinstance(ratio, Refusal) and len(self.ratios) < _MEMO_LIMIT:
            self.ratios[cell] = ratio
        return ratio

    def _meaning_of(self, text: str) -> float | Refusal:
        found = _NUMBER.fullmatch(text)
        if found is None:
            return Refusal.NO_ANSWER if _NO_ANSWER.fullmatch(text) else Refusal.NO_NUMBER
        if self._has_sign is None:
            self._has_sign = bool(found[2])
        if self._has_sign and not found[2]:
            # The last line of a killed logger: "19 %" may have become "1".
            return Refusal.CUT_SHORT
        return possible_ratio(_number(found[1]) / self._scale)


def possible_ratio(ratio: float) -> float | Refusal:
    """The ratio itself, or why no GPU can have it. What means have over 1 by rounding is cut off.

    >>> possible_ratio(0.5), possible_ratio(1.0000000000000002)
    (0.5, 1.0)
    """
    if 1.0 < ratio < 1.0 + _ROUNDING:
        return 1.0
    return ratio if 0.0 <= ratio <= 1.0 else Refusal.IMPOSSIBLE


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def are_ratios(cells: Sequence[str]) -> bool:
    """Whether values of a column without a unit look like 0 to 1 and not like percent.

    >>> are_ratios(["0.0", "0.97"]), are_ratios(["0", "1"]), are_ratios(["0.5", "97.0"])
    (True, False, False)
    >>> are_ratios(["0.5 %", "0.7 %"])
    False
    """
    matches = [found for cell in cells if (found := _NUMBER.fullmatch(cell.strip()))]
    if any(found[2] for found in matches):
        return False
    numbers = [_number(found[1]) for found in matches]
    return bool(numbers) and max(numbers) <= 1.0 and any(0.0 < value < 1.0 for value in numbers)


class SkippedLines:
    """How many lines were not used, why, and where each reason was first met."""

    def __init__(self) -> None:
        self.count = 0
        self._reasons: dict[Refusal, list[int]] = {}

    def add(self, reason: Refusal, line_number: int) -> None:
        self.count += 1
        entry = self._reasons.setdefault(reason, [0, line_number])
        entry[0] += 1

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each reason."""
        return tuple(
            f"Skipped {count} {'line' if count == 1 else 'lines'} {reason.value}; "
            f"first at line {first}."
            for reason, (count, first) in self._reasons.items()
        )


_OVER_FULL: Final = 1.05
"""A share may be a little over 1, as rates are; what is above is percent."""


class GuessedUnit:
    """Holds every value against the unit that was guessed by the first ones.

    Args:
        name: What to call the log in sentences.
        is_percent: The guess; else a share, 0 to 1.
        way_out: How the user can say the unit.
    """

    def __init__(self, name: str, *, is_percent: bool, way_out: str) -> None:
        self.is_percent = is_percent
        self._name = name
        self._way_out = way_out
        self._is_sure = False
        self._fraction: tuple[str, int] | None = None

    def hold(self, value: object, line_number: int) -> None:
        """Take note of a value.

        Raises:
            UnreadableLogError: It is percent for sure, and a share was guessed.
        """
        text = str(value).strip()
        if text.endswith("%"):
            self._is_sure = True
            return
        try:
            number = float(text.replace(",", "."))
        except ValueError:
            return
        if _OVER_FULL < number <= 100.0:
            if not self.is_percent:
                raise self._refusal(text, line_number)
            self._is_sure = True
        elif 0.0 < number < 1.0 and self._fraction is None:
            self._fraction = text, line_number

    def settle(self) -> None:
        """The log is over.

        Raises:
            UnreadableLogError: Percent was guessed, and every value could be a share.
        """
        if self.is_percent and not self._is_sure and self._fraction is not None:
            raise self._refusal(*self._fraction)

    def _refusal(self, text: str, line_number: int) -> UnreadableLogError:
        others = "all others are 0 or 1 or between" if self.is_percent else (
            "the first rows lie between 0 and 1"
        )  # fmt: skip
        return UnreadableLogError(
            f"{self._name}: line {line_number}: the utilisation is {text} here, and {others}: "
            f"nothing says whether it is percent or a share; {self._way_out}"
        )


MIB: Final = 1 << 20
BYTES_OF_UNIT: Final = MappingProxyType(
    {"b": 1, "byte": 1, "bytes": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": MIB, "mib": MIB,
     "m": MIB, "mibytes": MIB, "gb": 1 << 30, "gib": 1 << 30, "g": 1 << 30}
)  # fmt: skip
"""GPU tools count in powers of two, whatever they call them."""
_MEMORY: Final = re.compile(
    r"(\d{1,3}(?:,\d{3}){1,4}(?=[. A-Za-z]|$)|\d{1,15})(?:[.,](\d{0,9}))? ?([A-Za-z]{0,7})"
)


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
        found = _MEMORY.fullmatch(text)
        if found is None or not text.isascii():
            return None
        unit_bytes = BYTES_OF_UNIT.get(found[3].lower()) if found[3] else self._unit_bytes
        if unit_bytes is None:
            return None
        used = int(found[1].replace(",", "")) * unit_bytes
        if found[2]:
            used += int(found[2]) * unit_bytes // 10 ** len(found[2])
        return used
