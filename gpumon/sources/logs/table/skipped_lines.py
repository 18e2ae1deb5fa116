"""Lines of a log that were not used: how many, and why."""

from __future__ import annotations

from enum import Enum

from gpumon.core.wording import counted


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
