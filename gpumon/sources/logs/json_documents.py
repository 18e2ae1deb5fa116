"""JSON out of the pieces of a log: one document after another, however they are laid out."""

from __future__ import annotations

from collections.abc import Iterator
from json import JSONDecoder
from typing import Any, Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines

MAX_DOCUMENT: Final = 1 << 24
"""Characters of one document; the largest real ones have some hundred thousand."""
_BETWEEN: Final = " \t\r\n\f\ufeff,[]"
"""What may lie between two documents. Brackets: somebody made them one list."""
_FIRST_TRY: Final = 1 << 16
_GROWTH: Final = 1.5

Document = dict[str, Any]


class JsonDocuments:
    """The objects of a log, one after another: pretty-printed, one a line, or in one list.

    An object that is not complete when another begins in a new line is left
    out and counted: the logger was killed, and started again.

    Attributes:
        broken_off: How the log ended in the middle of an object or a list, once it was
            read to its end; ``None``: it did not.
    """

    def __init__(self, lines: Iterator[str], *, name: str, skipped: SkippedLines) -> None:
        self._lines = lines
        self._name = name
        self._skipped = skipped
        self._decode = JSONDecoder().raw_decode
        self._pending: list[str] = []
        self._forget()
        self._began = 0
        self.broken_off: str | None = None

    def __iter__(self) -> Iterator[tuple[int, Document]]:
        """Each object with the number of the line it began in.

        Raises:
            UnreadableLogError: An object is larger than ``MAX_DOCUMENT``.
        """
        number, at_line_start = 0, True
        for piece in self._watched():
            number += at_line_start
            if at_line_start and self._pending and piece.startswith("{"):
                yield from self._close()
            began_here, at_line_start = at_line_start, piece.endswith("\n")
            if not self._pending:
                begun = piece.lstrip(_BETWEEN)
                if begun[:1] != "{":
                    if begun and began_here:
                        self._skipped.add(Refusal.DAMAGED_JSON, number)
                    continue
                piece, self._began = begun, number
            self._pending.append(piece)
            self._size += len(piece)
            self._depth += piece.count("{") - piece.count("}")
            if (self._depth <= 0 or self._size >= _FIRST_TRY) and self._size >= self._next_try:
                yield from self._open_objects()
        yield from self._close(is_end=True)

    def _watched(self) -> Iterator[str]:
        """The pieces, of which the last tells whether a list of objects has its end."""
        first = last = ""
        began = 1
        for piece in self._lines:
            if not piece.isspace():
                first, last = first or piece, piece
            began += not first
            yield piece
        if first.lstrip("\ufeff \t")[:1] == "[" and last.rstrip()[-1:] in ("}", ","):
            self.broken_off = broken_off_at(began)

    def _close(self, *, is_end: bool = False) -> Iterator[tuple[int, Document]]:
        """Nothing more belongs to what is pending."""
        self._next_try = 0
        yield from self._open_objects()
        if self._pending:
            if is_end:
                self.broken_off = broken_off_at(self._began)
            self._skipped.add(Refusal.DAMAGED_JSON, self._began)
        self._forget()

    def _open_objects(self) -> Iterator[tuple[int, Document]]:
        """Every complete object of what is pending; what is left stays pending."""
        text = "".join(self._pending)
        while text.startswith("{"):
            try:
                value, end = self._decode(text)
            except (ValueError, RecursionError):
                self._keep(text)
                return
            yield self._began, value
            self._began += text.count("\n", 0, end)
            rest = text[end:]
            text = rest.lstrip(_BETWEEN)
            self._began += rest[: len(rest) - len(text)].count("\n")
        if text:
            self._skipped.add(Refusal.DAMAGED_JSON, self._began)
        self._forget()

    def _keep(self, text: str) -> None:
        if len(text) > MAX_DOCUMENT:
            raise UnreadableLogError(
                f"{self._name}: line {self._began}: a JSON object that begins here has no end "
                f"within {MAX_DOCUMENT >> 20} MiB"
            )
        self._pending = [text]
        self._size = len(text)
        # A brace within a string misleads the count: wait for more before the next attempt, so
        # that all attempts together take no longer than a few times the last of them.
        self._next_try = int(self._size * _GROWTH) if self._size >= _FIRST_TRY else self._size * 2
        self._depth = text.count("{") - text.count("}")

    def _forget(self) -> None:
        self._pending.clear()
        self._size = self._depth = self._next_try = 0


def broken_off_at(line_number: int) -> str:
    """How to say that a log ends within what begins at a line.

    >>> broken_off_at(7)
    'the JSON is cut short: what begins at line 7 has no end'
    """
    return f"the JSON is cut short: what begins at line {line_number} has no end"
