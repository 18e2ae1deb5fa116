"""Lines of a log that were not used: how many, why, and where each reason was first met."""

from __future__ import annotations

from enum import Enum

from gpumon.core.wording import counted


class Refusal(str, Enum):
    """Why a line cannot be used, as the report says it."""

    NO_ANSWER = "without a utilisation (the cell is empty, or says [N/A] or the like)"
    LOST = "in which the GPU is lost"
    RESET = "in which the GPU asks for a reset"
    ERROR = "with an error of the driver instead of an answer (ERR!, [Unknown Error])"
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
    FOREIGN = "that such a log does not hold"
    TOO_LONG = "too long to be a part of such a log"
    DAMAGED_JSON = "of JSON that is cut short, damaged or no JSON at all"
    TWICE = "of a moment of its GPU that an earlier series told"
    DRIVER = "in which nvidia-smi says that it could not ask the GPU"


class SkippedLines:
    """How many lines were not used, why, and where each reason was first met."""

    def __init__(self) -> None:
        self.count = 0
        self._reasons: dict[Refusal, list[int]] = {}

    def add(self, reason: Refusal, line_number: int) -> None:
        self.count += 1
        entry = self._reasons.setdefault(reason, [0, line_number])
        entry[0] += 1

    def has(self, reason: Refusal) -> bool:
        """Whether a line was skipped for that reason."""
        return reason in self._reasons

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each reason."""
        return tuple(
            f"Skipped {counted(count, 'line', 'lines')} {reason.value}"
            f"{'; first at' if count > 1 else ':'} line {first}."
            for reason, (count, first) in self._reasons.items()
        )
