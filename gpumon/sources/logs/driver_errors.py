"""Where in a log the driver could not be read, or one GPU, and where it could be again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumon.core.wording import counted
from gpumon.sources.logs.driver_words import (
    CELL_CODES,
    DriverError,
    error_in,
    is_continued,
    is_unfinished,
)
from gpumon.sources.logs.log_sample import ErrorLine, LoggedError, Outages
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.stamps.date_lines import date_in
from gpumon.sources.logs.table.skipped_lines import Refusal

_LONG_NS: Final = 1 << 62


@dataclass(slots=True)
class _Found:
    """One error; ``newest`` and ``lines_since`` are of its last outage, the rest of all."""

    text: str
    first: ErrorLine
    newest: ErrorLine
    lines_since: int = 0
    lines: int = 0
    outages: dict[int, Outages] = field(default_factory=dict)

    def begin(self, newest: ErrorLine) -> None:
        self.newest, self.lines_since = newest, 0
        for gpu, known in self.outages.items():
            self.outages[gpu] = known._replace(back_ns=None)

    @property
    def is_over(self) -> bool:
        return any(known.back_ns is not None for known in self.outages.values())

    def end(self, gpu: int, stamp_ns: int) -> None:
        times, longest_ns, back_ns = self.outages.get(gpu, (0, 0, None))
        if back_ns is None:
            since_ns = self.newest.before_ns
            silence_ns = _LONG_NS if since_ns is None else stamp_ns - since_ns
            self.outages[gpu] = Outages(times + 1, max(longest_ns, silence_ns), stamp_ns)


class DriverErrors:
    """Follows them from line to line; memory is that of the different errors.

    Attributes:
        began: How often one began: the next row of each GPU tells whether it is over.
        partly: By position, the line and the stamp of the first row of a GPU that has an error
            beside a utilisation.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.began = 0
        self.partly: dict[int, tuple[int, int]] = {}
        self._found: dict[tuple[DriverError, int | None], _Found] = {}
        self._begun, self._begun_at = "", 0
        self._when = ""

    def __bool__(self) -> bool:
        return bool(self._found)

    def in_line(self, text: str, where: ErrorLine) -> bool:
        """Whether a line that is no row says it, or is a part of what says it."""
        begun = self._begun if self._begun_at == where.line - 1 else ""
        self._begun = ""
        whole = f"{begun} {text.strip()}".strip()
        if not begun and is_unfinished(whole):
            self._begun, self._begun_at = whole, where.line
            return True
        error = error_in(whole)
        if error is None:
            return is_continued(whole)
        self._add(error, None, whole, where._replace(line=where.line - bool(begun)))
        return True

    def in_cell(self, reason: Refusal, gpu: int | None, number: int, stamp_ns: int | None) -> None:
        """A GPU's own cell says it, for one of the reasons in ``CELL_CODES``."""
        error = DriverError(CELL_CODES[reason], "", is_of_one=True)
        self._add(error, gpu, f"a row {reason.value}", ErrorLine(number, stamp_ns, None))

    def read_again(self, gpu: int, stamp_ns: int) -> None:
        """A row says how busy a GPU was."""
        for (_, position), found in self._found.items():
            if position in (None, gpu):
                found.end(gpu, stamp_ns)

    def are_all(self, head: Sequence[str], *, but: int = 0) -> bool:
        """Whether, but for so few lines and for dates, the first ones of a log say nothing else."""
        self._forget()
        passed = [self._is_passed(line, number) for number, line in enumerate(head, start=1)]
        if passed.count(False) > but:
            self._forget()
        return bool(self)

    def pass_over(self, lines: Iterator[str], number: int) -> tuple[list[str], int]:
        """The first lines after those, and how many are before them; none: there are none."""
        dated: list[str] = []
        for line in lines:
            number += 1
            if not self._is_passed(line, number):
                return [*dated, line, *head_of(lines)], number - 1 - len(dated)
            dated = [line] if date_in(line) is not None else []
        return [], number

    def _is_passed(self, line: str, number: int) -> bool:
        is_date = date_in(line) is not None
        if is_date and not self:
            self._when = f" of {line.strip()}"
        return is_date or not line.strip() or self.in_line(line, ErrorLine(number))

    def told(self) -> tuple[LoggedError, ...]:
        """All of them."""
        return tuple(
            LoggedError(error, gpu, found.first, found.newest, found.lines_since, found.outages)
            for (error, gpu), found in self._found.items()
        )

    def sentence(self) -> str:
        """Why a log in which there is nothing else tells nothing, and what to do."""
        (error, _), found = next(iter(self._found.items()))
        count = counted(sum(one.lines for one in self._found.values()), "line", "lines")
        return (
            f"line {found.first.line}: no GPU could be read when this was logged, and there is no "
            f'row of one ({count}, the first{self._when}: "{found.text[:200]}"): {error.what}'
        )

    def _add(self, error: DriverError, gpu: int | None, text: str, where: ErrorLine) -> None:
        found = self._found.setdefault((error, gpu), _Found(text, where, where))
        if not found.lines or found.is_over:
            found.begin(where)
            self.began += 1
        found.lines += 1
        found.lines_since += 1
