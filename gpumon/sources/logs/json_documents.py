"""JSON objects from the pieces of a log, however they are laid out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.table.cell_values import Refusal, SkippedLines

MAX_DOCUMENT: Final = 1 << 25
"""Characters of one object: 55 GPUs with as many points as Prometheus returns."""
_BLOCK: Final = 1 << 16
_BETWEEN: Final = " \t\r\n\f\ufeff,[]"
"""May stand between two objects; brackets if they are one list."""
_OBJECT: Final = re.compile(r"\{")
_DEEPEST: Final = 1_000
_LONGEST_WORD: Final = len("-Infinity")
"""The parser may stop this far before the end of text that is cut short."""
_PARSER: Final = json.JSONDecoder(parse_constant=str)
"""Python writes NaN and Infinity, which are not JSON: they are read as texts."""

Document = dict[str, Any]


class JsonDocuments:
    """The objects of a log: pretty-printed, one a line, or in one list.

    An object that is cut short or damaged is skipped and counted, up to the next line that begins
    with an object and is indented no further.

    Attributes:
        broken_off: How the log ended in the middle of an object; ``None``: it did not.
    """

    def __init__(self, lines: Iterator[str], *, name: str, skipped: SkippedLines) -> None:
        self._lines = lines
        self._name = name
        self._skipped = skipped
        self._sought = _OBJECT
        self._text = ""
        self._number = 1
        self._skipped_number = 0
        self.broken_off: str | None = None
        self.left_out = 0

    def __iter__(self) -> Iterator[tuple[int, Document]]:
        """Yield each object with the number of its first line.

        Raises:
            UnreadableLogError: An object is larger than ``MAX_DOCUMENT``.
        """
        pieces: list[str] = []
        size, wanted = 0, _BLOCK
        for piece in self._lines:
            pieces.append(piece)
            size += len(piece)
            if size < wanted or not (piece.endswith("\n") or size > MAX_DOCUMENT):
                continue
            self._text += "".join(pieces)
            pieces.clear()
            yield from self._objects(is_end=False)
            if len(self._text) > MAX_DOCUMENT:
                raise UnreadableLogError(
                    f"{self._name}: line {self._number}: a JSON object that begins here has no end "
                    f"within {MAX_DOCUMENT >> 20} MiB; save it in parts"
                )
            # An object that is not complete is parsed again once there is twice as much of it.
            size, wanted = 0, max(_BLOCK, len(self._text))
        self._text += "".join(pieces)
        yield from self._objects(is_end=True)

    def _objects(self, *, is_end: bool) -> Iterator[tuple[int, Document]]:
        """Yield what is complete or damaged in the text at hand; the rest stays there."""
        at = 0
        while found := self._sought.search(self._text, at):
            at = self._go_on(at, found.end() - 1)
            began = self._number
            try:
                document, end = _PARSER.raw_decode(self._text, at)
            except (ValueError, RecursionError) as error:
                is_open = self._may_go_on(error)
                if is_open and not is_end:
                    self._text = self._text[at:]
                    return
                if is_open:
                    self.broken_off = (
                        f"the JSON is cut short: what begins at line {began} has no end"
                    )
                at = self._leave_out(at)
                continue
            self._number += self._text.count("\n", at, end)
            self._sought, at, self.broken_off = _OBJECT, end, None
            yield began, document
        at = self._go_on(at, len(self._text))
        self._text = self._text[at:]

    def _may_go_on(self, error: Exception) -> bool:
        """Return whether an object may only lack its end so far."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        is_at_end = len(self._text.rstrip()) - error.pos <= _LONGEST_WORD
        return is_at_end or error.msg.startswith("Unterminated string")

    def _leave_out(self, at: int) -> int:
        """Count the object that begins at ``at``, and find where another may begin."""
        self._skip(self._number)
        self.left_out += 1
        indent = at - self._text.rfind("\n", 0, at) - 1
        self._sought = re.compile(rf"^[ \t\[]{{0,{min(indent, _DEEPEST)}}}\{{", re.M)
        return at + 1

    def _go_on(self, at: int, to: int) -> int:
        """Advance to the next object, or to the end, and count the lines with other text."""
        between = self._text[at:to]
        if self._sought is _OBJECT:
            for number, line in enumerate(between.split("\n"), start=self._number):
                if line.strip(_BETWEEN):
                    self._skip(number)
        self._number += between.count("\n")
        return to

    def _skip(self, number: int) -> None:
        if number != self._skipped_number:
            self._skipped.add(Refusal.DAMAGED_JSON, number)
        self._skipped_number = number
