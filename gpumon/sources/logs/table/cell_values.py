"""Cells as ratios and bytes, or why they are none; whether a utilisation is percent or a ratio."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from gpumon.core.wording import counted
from gpumon.errors import UnreadableLogError


class Refusal(str, Enum):
    """Why a line cannot be used, as the report says it."""

    NO_ANSWER = "without a utilisation (an empty cell, [N/A] or the like)"
    LOST = "in which the GPU is lost"
    RESET = "in which the GPU requires a reset"
    ERROR = "with a driver error instead of a value (ERR!, [Unknown Error])"
    IMPOSSIBLE = "with an impossible utilisation (over 100 %, negative or not a number)"
    NO_NUMBER = "with something other than a utilisation in its column"
    WIDTH = "with more or fewer columns than the header"
    STAMP = "with a time that cannot be read"
    UNKNOWN_GPU = "of an unknown GPU"
    HEADER = "of a table without a utilisation column"
    OTHER_HEADER = "under a header other than the first"
    UNHEADED = "before the first header"
    CUT_TABLE = "of a table that was cut off"
    FOREIGN = "with other text than such a log has"
    TOO_LONG = "too long for such a log"
    DAMAGED_JSON = "of JSON that is cut short or damaged, or of other text"
    TWICE = "with a time that an earlier series of its GPU has"
    DRIVER = "in which nvidia-smi could not read the GPU"


class SkippedLines:
    """Counts lines that were not used, by reason, with the first line of each."""

    def __init__(self) -> None:
        self.count = 0
        self._reasons: dict[Refusal, list[int]] = {}

    def add(self, reason: Refusal, line_number: int) -> None:
        self.count += 1
        entry = self._reasons.setdefault(reason, [0, line_number])
        entry[0] += 1

    def has(self, reason: Refusal) -> bool:
        return reason in self._reasons

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each reason."""
        return tuple(
            f"Skipped {counted(count, 'line', 'lines')} {reason.value}"
            f"{'; first at' if count > 1 else ':'} line {first}."
            for reason, (count, first) in self._reasons.items()
        )


MIB: Final = 1 << 20
BYTES_OF_UNIT: Final = MappingProxyType(
    {"b": 1, "byte": 1, "bytes": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": MIB, "mib": MIB,
     "m": MIB, "mibytes": MIB, "gb": 1 << 30, "gib": 1 << 30, "g": 1 << 30}
)  # fmt: skip
"""GPU tools count in powers of two, whatever the unit's name."""
_MEMORY: Final = re.compile(
    r"(\d{1,3}(?:,\d{3}){1,4}(?=[. A-Za-z]|$)|\d{1,15})(?:[.,](\d{0,9}))? ?([A-Za-z]{0,7})"
)
_NUMBER: Final = re.compile(
    r"([-+]?(?:\d{1,9}(?:[.,]\d{0,17})?|nan|inf(?:inity)?))\s*(%?)", re.I | re.A
)
_NO_ANSWER: Final = re.compile(
    r"\[.*\]|n/?a|none|null|-|not (?:supported|found|available)|(?:field|gpu) not found|", re.I
)
_ERRORS: Final = MappingProxyType(
    {
        Refusal.LOST: re.compile(r"\[?gpu is lost\]?", re.I),
        Refusal.RESET: re.compile(r"\[?gpu requires (?:a )?reset\]?", re.I),
        Refusal.ERROR: re.compile(r"err!?|\[?(?:unknown )?error\]?", re.I),
    }
)
"""What nvidia-smi writes into a cell of a GPU that the driver cannot read."""
_MEMO_LIMIT: Final = 16_384
_ROUNDING: Final = 1e-9


@lru_cache(_MEMO_LIMIT)
def ratio_in(cell: str, full: float = 100.0) -> float | Refusal:
    """Return the utilisation in a cell, 0 to 1, or why there is none.

    ``full`` is the value of the full time: 100 for percent.

    >>> ratio_in(" 45 %"), ratio_in("0.45", 1.0), ratio_in("364 MiB").name
    (0.45, 0.45, 'NO_NUMBER')
    """
    found = _NUMBER.fullmatch(cell.strip())
    return _refusal_of(cell.strip()) if found is None else _possible_ratio(_number(found[1]) / full)


def _possible_ratio(ratio: float) -> float | Refusal:
    """Return the ratio, or ``IMPOSSIBLE``; rounding errors above 1 are removed.

    >>> _possible_ratio(0.5), _possible_ratio(1.0000000000000002)
    (0.5, 1.0)
    """
    if 1.0 < ratio < 1.0 + _ROUNDING:
        return 1.0
    return ratio if 0.0 <= ratio <= 1.0 else Refusal.IMPOSSIBLE


def _refusal_of(text: str) -> Refusal:
    """Return why a cell without a number has no utilisation.

    >>> [_refusal_of(text).name for text in ("[N/A]", "[GPU is lost]", "ERR!", "95 W")]
    ['NO_ANSWER', 'LOST', 'ERROR', 'NO_NUMBER']
    """
    for reason, form in _ERRORS.items():
        if form.fullmatch(text):
            return reason
    return Refusal.NO_ANSWER if _NO_ANSWER.fullmatch(text) else Refusal.NO_NUMBER


def _number(text: str) -> float:
    return float(text.replace(",", "."))


@lru_cache(_MEMO_LIMIT)
def bytes_in(cell: str, unit_bytes: int = MIB) -> int | None:
    """Return the bytes of a cell, a bare number in ``unit_bytes``; ``None``: no amount.

    >>> bytes_in(" 12MiB "), bytes_in("1.5 GB"), bytes_in("4096", 1), bytes_in("-")
    (12582912, 1610612736, 4096, None)
    >>> bytes_in("1,830", 1), bytes_in("1830,0", 1)
    (1830, 1830)
    """
    text = cell.strip()
    found = _MEMORY.fullmatch(text)
    if found is None or not text.isascii():
        return None
    each_bytes = BYTES_OF_UNIT.get(found[3].lower()) if found[3] else unit_bytes
    if each_bytes is None:
        return None
    used = int(found[1].replace(",", "")) * each_bytes
    if found[2]:
        used += int(found[2]) * each_bytes // 10 ** len(found[2])
    return used


def ratio_of(value: object, *, full: float) -> float | Refusal:
    """Return a JSON value, or a cell without a percent sign, as a ratio, or why it is none.

    ``full`` is the value of the full time: 100 for percent.

    >>> ratio_of(96, full=100), ratio_of(None, full=100).name
    (0.96, 'NO_ANSWER')
    """
    if value is None:
        return Refusal.NO_ANSWER
    if isinstance(value, str):
        text = value.strip()
        try:
            value = _number(text)
        except ValueError:
            return _refusal_of(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return Refusal.NO_NUMBER
    if value != value:  # NaN; math.isnan fails for large integers
        return Refusal.NO_ANSWER
    return _possible_ratio(value / full) if abs(value) < 1e9 else Refusal.IMPOSSIBLE


def bytes_of(value: object, *, unit_bytes: int) -> int | None:
    """Return a JSON value, or a cell, as bytes; ``None``: no amount of memory.

    >>> bytes_of(12_000, unit_bytes=1 << 20), bytes_of("N/A", unit_bytes=1)
    (12582912000, None)
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text)
        except ValueError:
            return bytes_in(text, unit_bytes)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    amount = value * unit_bytes
    return round(amount) if 0 <= amount < 1e18 else None


OVER_FULL: Final = 1.05
"""A ratio may be a little above 1, as rates are; larger values are percent."""


class GuessedUnit:
    """Checks every value against the unit that the first ones suggested.

    Args:
        is_percent: The guess; otherwise ratios.
        way_out: How the user can state the unit.
        is_stated: Whether a heading says percent: only fractions, all below 1, contradict it.
    """

    def __init__(
        self, name: str, *, is_percent: bool, way_out: str, is_stated: bool = False
    ) -> None:
        self.is_percent = is_percent
        self._name = name
        self._way_out = way_out
        self._is_stated = is_stated
        self._is_sure = False
        self._fraction: tuple[str, int] | None = None
        self._one: tuple[str, int] | None = None

    @classmethod
    def of(cls, name: str, cells: Sequence[str], *, way_out: str) -> GuessedUnit:
        """Return the guess from the first cells of a log."""
        return cls(name, is_percent=not _are_ratios(cells), way_out=way_out)

    @property
    def notes(self) -> list[str]:
        """Notes for the report."""
        if self.is_percent:
            return []
        return ["The utilisation lies between 0 and 1: read as a share, not as percent."]

    def check(self, value: object, line_number: int) -> None:
        """Check a value; refuse the log if it is percent, and ratios were guessed."""
        if self._is_sure and self.is_percent:
            return
        text = str(value).strip()
        if text.endswith("%"):
            self._is_sure = True
            return
        try:
            number = float(text.replace(",", "."))
        except ValueError:
            return
        if OVER_FULL < number <= 100.0:
            if not self.is_percent:
                raise self._refusal(text, line_number)
            self._is_sure = True
        elif 0.0 < number < 1.0 and self._fraction is None:
            self._fraction = text, line_number
        elif 1.0 <= number <= OVER_FULL and self._one is None:
            self._one = text, line_number

    def settle(self) -> None:
        """Refuse a finished log if percent was guessed, and all values could be ratios.

        A log of zeros is the same in both units.
        """
        small = self._fraction if self._is_stated else self._fraction or self._one
        if self.is_percent and not self._is_sure and small is not None:
            raise self._refusal(*small)

    def _refusal(self, text: str, line_number: int) -> UnreadableLogError:
        if self._is_stated:
            return UnreadableLogError(
                f"{self._name}: line {line_number}: the heading says percent, and the utilisation "
                f"is {text} here and never above 1: it may be a share from 0 to 1; {self._way_out}"
            )
        first = "the first rows lie between 0 and 1"
        others = "no value is above 1" if self.is_percent else first
        return UnreadableLogError(
            f"{self._name}: line {line_number}: the utilisation is {text} here, and {others}: "
            f"it is unclear whether it is percent or a share; {self._way_out}"
        )


def _are_ratios(cells: Sequence[str]) -> bool:
    """Return whether values of a column without a unit look like ratios and not like percent.

    >>> _are_ratios(["0.0", "0.97"]), _are_ratios(["0", "1"]), _are_ratios(["0.5", "97.0"])
    (True, False, False)
    >>> _are_ratios(["0.5 %", "0.7 %"])
    False
    """
    found = [read for cell in cells if (read := _NUMBER.fullmatch(cell.strip())) is not None]
    if any(read[2] for read in found):  # a percent sign
        return False
    numbers = [_number(read[1]) for read in found]
    return bool(numbers) and max(numbers) <= 1.0 and any(0.0 < value < 1.0 for value in numbers)
