"""Percent or share, where no heading says it: the first rows tell, and later ones must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.table.cell_values import utilization_in

OVER_FULL: Final = 1.05
"""A share may be a little over 1, as rates are; what is above is percent."""


class GuessedUnit:
    """Holds every value against the unit that was guessed by the first ones.

    Args:
        is_percent: The guess; else a share, 0 to 1.
        way_out: How the user can say the unit.
        is_said: Whether a heading says percent: fractions alone, all below 1, contradict it.
    """

    def __init__(self, name: str, *, is_percent: bool, way_out: str, is_said: bool = False) -> None:
        self.is_percent = is_percent
        self._name = name
        self._way_out = way_out
        self._is_said = is_said
        self._is_sure = False
        self._fraction: tuple[str, int] | None = None
        self._one: tuple[str, int] | None = None

    @classmethod
    def of(cls, name: str, cells: Sequence[str], *, way_out: str) -> GuessedUnit:
        """The guess that the first cells of a log bear out."""
        return cls(name, is_percent=not _are_ratios(cells), way_out=way_out)

    @property
    def notes(self) -> list[str]:
        """What the report has to say of it."""
        if self.is_percent:
            return []
        return ["The utilisation lies between 0 and 1: read as a share, not as percent."]

    def hold(self, value: object, line_number: int) -> None:
        """Take note of a value; refuse the log where it is percent, and a share was guessed."""
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
        """The log is over: refuse it where percent was guessed, and all could be shares.

        A log of zeros is the same in both units.
        """
        small = self._fraction if self._is_said else self._fraction or self._one
        if self.is_percent and not self._is_sure and small is not None:
            raise self._refusal(*small)

    def _refusal(self, text: str, line_number: int) -> UnreadableLogError:
        if self._is_said:
            return UnreadableLogError(
                f"{self._name}: line {line_number}: the heading says percent, and the utilisation "
                f"is {text} here and never above 1: it may be a share from 0 to 1; {self._way_out}"
            )
        first = "the first rows lie between 0 and 1"
        others = "no value is above 1" if self.is_percent else first
        return UnreadableLogError(
            f"{self._name}: line {line_number}: the utilisation is {text} here, and {others}: "
            f"nothing says whether it is percent or a share; {self._way_out}"
        )


def _are_ratios(cells: Sequence[str]) -> bool:
    """Whether values of a column without a unit look like 0 to 1 and not like percent.

    >>> _are_ratios(["0.0", "0.97"]), _are_ratios(["0", "1"]), _are_ratios(["0.5", "97.0"])
    (True, False, False)
    >>> _are_ratios(["0.5 %", "0.7 %"])
    False
    """
    found = [said for cell in cells if (said := utilization_in(cell)) is not None]
    if any(has_sign for _, has_sign in found):
        return False
    numbers = [number for number, _ in found]
    return bool(numbers) and max(numbers) <= 1.0 and any(0.0 < value < 1.0 for value in numbers)
