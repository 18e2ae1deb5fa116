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
from gpumon.sources.logs.log_sample import LoggedError, Outages
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.stamps.date_lines import date_in
from gpumon.sources.logs.table.skipped_lines import Refusal

_LONG_NS: Final = 1 << 62


@dataclass(slots=True)
class _Found:
    """One error; ``since_ns`` and ``lines_since`` are of its last outage, the rest of all."""

    text: str
    line: int
    stamp_ns: int | None
    before_ns: int | None
    since_ns: int | None = None
    lines_since: int = 0
    lines: int = 0
    outages: dict[int, Outages] = field(default_factory=dict)

    def begin(self, since_ns: int | None) -> None:
        self.since_ns, self.lines_since = since_ns, 0
        for gpu, known in self.outages.items():
            self.outages[gpu] = known._replace(back_ns=None)

    @property
    def is_over(self) -> bool:
        return any(known.back_ns is not None for known in self.outages.values())

    def end(self, gpu: int, stamp_ns: int) -> None:
        times, longest_ns, back_ns = self.outages.get(gpu, (0, 0, None))
        if back_ns is None:
            silence_ns = _LONG_NS if self.since_ns is None else stamp_ns - self.since_ns
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

    def in_line(
        self, text: str, number: int, stamp_ns: int | None = None, before_ns: int | None = None
    ) -> bool:
        """Whether a line that is no row says it, or is a part of what says it.

        Args:
            text: The line.
            number: Its number.
            stamp_ns: When it was written, where it says so.
            before_ns: The stamp of the last row before it.
        """
        begun = self._begun if self._begun_at == number - 1 else ""
        self._begun = ""
        whole = f"{begun} {text.strip()}".strip()
        if not begun and is_unfinished(whole):
            self._begun, self._begun_at = whole, number
            return True
        error = error_in(whole)
        if error is None:
            return is_continued(whole)
        line = number - 1 if begun else number
        self._add(error, None, _Found(whole, line, stamp_ns, before_ns))
        return True

    def in_cell(self, reason: Refusal, gpu: int | None, number: int, stamp_ns: int | None) -> None:
        """A GPU's own cell says it, for one of the reasons in ``CELL_CODES``."""
        error = DriverError(CELL_CODES[reason], "", is_of_one=True)
        self._add(error, gpu, _Found(f"a row {reason.value}", number, stamp_ns, None))

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
        return is_date or not line.strip() or self.in_line(line, number)

    def told(self) -> tuple[LoggedError, ...]:
        """All of them."""
        return tuple(
            LoggedError(
                error.what, error.which, error.is_of_one, gpu, found.line, found.stamp_ns,
                found.before_ns, found.lines_since, found.outages,
            )
            for (error, gpu), found in self._found.items()
        )  # fmt: skip

    def sentence(self) -> str:
        """Why a log in which there is nothing else tells nothing, and what to do."""
        (error, _), found = next(iter(self._found.items()))
        count = counted(sum(one.lines for one in self._found.values()), "line", "lines")
        return (
            f"line {found.line}: no GPU could be read when this was logged, and the log has no row "
            f'of one ({count}, the first{self._when}: "{found.text[:200]}"): {error.what}'
        )

    def _add(self, error: DriverError, gpu: int | None, new: _Found) -> None:
        found = self._found.setdefault((error, gpu), new)
        if found is new or found.is_over:
            found.begin(new.before_ns)
            self.began += 1
        found.lines += 1
        found.lines_since += 1
