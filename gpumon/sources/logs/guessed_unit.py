"""Percent or share, where no heading says it: the first rows tell, and later ones must agree."""

from __future__ import annotations

from typing import Final

from gpumon.errors import UnreadableLogError

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
