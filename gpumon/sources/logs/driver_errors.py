"""Driver errors that nvidia-smi prints instead of a utilisation: where they begin and end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.core.wording import counted
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.stamps.stamp_parsers import date_in
from gpumon.sources.logs.table.cell_values import Refusal
from gpumon.sources.nvml.codes import driver_trouble

CELL_CODES: Final = {Refusal.LOST: 15, Refusal.RESET: 16, Refusal.ERROR: 999}
"""NVML codes of the errors in a GPU's own cell."""
ERROR_MARKS: Final = ("ERR!", "[Unknown Error]")
"""Cells for which the driver returned an error."""
_OF_A_GPU: Final = (15, 16)
"""Codes that always concern one GPU."""
_PATTERNS: Final = (
    (15, r"gpu is lost|fallen off the bus"),
    (16, r"requires? (?:a )?reset"),
    (18, r"driver/library"),
    (9, r"communicate with the nvidia driver|driver not loaded"),
    (12, r"find libnvidia-ml|library not found"),
    (8, r"external power"),
    (4, r"insufficient permissions"),
    (999, r"unknown error"),
)
_CODES: Final = tuple((code, re.compile(pattern, re.I)) for code, pattern in _PATTERNS)
_OF_ONE: Final = re.compile(
    r"device handle for (?:gpu)? ?"
    r"(?P<gpu>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|\d{1,4}\b)?",
    re.I,
)
_ERROR: Final = re.compile(
    r"failed to initialize nvml|device handle for|driver/library version|gpu is lost"
    r"|gpu requires (?:a )?reset|nvidia-smi has failed|nvidia-smi couldn't"
    r"|communicate with the nvidia driver|^\s*no devices were found",
    re.I,
)
_CONTINUED: Final = re.compile(
    r"nvml library version|make sure that the latest|installed and running|reboot the system", re.I
)


class DriverError(NamedTuple):
    """Why something cannot be read.

    Attributes:
        code: NVML's code; ``None``: unknown, or there is no GPU.
        which: Bus id or index of the one GPU concerned; ``""``: unknown.
        is_of_one: Whether it concerns one GPU; otherwise the driver, and so all GPUs.
    """

    code: int | None
    which: str
    is_of_one: bool

    @property
    def what(self) -> str:
        """Why, a colon, and what to do, as for a GPU that is read live."""
        if not self.is_of_one:
            return driver_trouble(self.code)
        of_one = UNREADABLE.get(self.code or 0)
        if of_one is None:
            return "nvidia-smi cannot read the GPU: see `nvidia-smi` and `dmesg`"
        return f"{of_one.meaning}: {of_one.advice}"


class Outages(NamedTuple):
    """When a GPU could not be read.

    Attributes:
        times: How often it was read again.
        longest_ns: Longest time from the last row of any GPU before an error to its own next row.
        back_ns: When it was read again after the last error; ``None``: never.
    """

    times: int
    longest_ns: int
    back_ns: int | None


class ErrorLine(NamedTuple):
    """A line with an error, its stamp, and that of the last row before it."""

    line: int
    stamp_ns: int | None = None
    before_ns: int | None = None


class LoggedError(NamedTuple):
    """A driver error in a part of a log.

    Attributes:
        cause: What the driver reports.
        gpu: Position of the GPU whose own cell holds it; ``None``: no cell does.
        newest: Where its last outage begins.
        lines: Lines with it since then.
        outages: Of each GPU that was read again, by position.
    """

    cause: DriverError
    gpu: int | None
    first: ErrorLine
    newest: ErrorLine
    lines: int
    outages: Mapping[int, Outages]


def error_in(text: str) -> DriverError | None:
    """Return the error that a line reports; ``None``: there is none.

    >>> error_in("Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.")
    DriverError(code=15, which='0000:18:00.0', is_of_one=True)
    """
    if _ERROR.search(text) is None:
        return None
    one = _OF_ONE.search(text)
    code = next((code for code, way in _CODES if way.search(text)), None)
    which = "" if one is None else (one["gpu"] or "").lower()
    return DriverError(code, which, one is not None or code in _OF_A_GPU)


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
    """Follows errors from line to line; memory grows only with different errors.

    Attributes:
        began: How often an error began: the next row of each GPU shows whether it is over.
        partly: Line and stamp of the first row of a GPU with an error and a utilisation, by
            position.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.began = 0
        self.partly: dict[int, tuple[int, int]] = {}
        self._found: dict[tuple[DriverError, int | None], _Found] = {}
        self._when = ""

    def __bool__(self) -> bool:
        return bool(self._found)

    def read_line(self, text: str, where: ErrorLine) -> bool:
        """Return whether a line that is not a row is an error, or adds to the one before it."""
        error = error_in(text)
        if error is None:
            return _CONTINUED.search(text) is not None
        self._add(error, None, text.strip(), where)
        return True

    def add_cell(self, reason: Refusal, gpu: int | None, number: int, stamp_ns: int | None) -> None:
        """Add an error in a GPU's own cell, for one of the reasons in ``CELL_CODES``."""
        error = DriverError(CELL_CODES[reason], "", is_of_one=True)
        self._add(error, gpu, f"a row {reason.value}", ErrorLine(number, stamp_ns, None))

    def read_again(self, gpu: int, stamp_ns: int) -> None:
        """A row has a utilisation of this GPU: its outages are over."""
        for (_, position), found in self._found.items():
            if position in (None, gpu):
                found.end(gpu, stamp_ns)

    def are_all(self, head: Sequence[str], *, but: int = 0) -> bool:
        """Return whether the first lines hold nothing but errors, dates and ``but`` other lines."""
        self._forget()
        passed = [self._is_passed(line, number) for number, line in enumerate(head, start=1)]
        if passed.count(False) > but:
            self._forget()
        return bool(self)

    def pass_over(self, lines: Iterator[str], number: int) -> tuple[list[str], int]:
        """Return the first lines after the errors, and the number of lines before them."""
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
        return is_date or not line.strip() or self.read_line(line, ErrorLine(number))

    def all(self) -> tuple[LoggedError, ...]:
        """Return all errors."""
        return tuple(
            LoggedError(error, gpu, found.first, found.newest, found.lines_since, found.outages)
            for (error, gpu), found in self._found.items()
        )

    def sentence(self) -> str:
        """Return why a log of nothing but errors has no data, and what to do."""
        (error, _), found = next(iter(self._found.items()))
        count = counted(sum(error.lines for error in self._found.values()), "line", "lines")
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
