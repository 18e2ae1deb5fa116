"""JSON out of the pieces of a log: one object after another, however they are laid out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import ijson

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines

MAX_DOCUMENT: Final = 1 << 24
"""Characters of one document; the largest real ones have some hundred thousand."""
_DEEPEST: Final = 100
"""Objects and lists in one another: whatever writes one out calls itself for each."""
_BLOCK: Final = 1 << 16
"""Characters that are looked at together, and after which an endless list is handed out."""
_BETWEEN: Final = " \t\r\n\f\ufeff,[]}"
"""What may lie between two documents. Brackets: somebody made them one list."""
_PARTS: Final = re.compile(r"\{?[^{}]+\}?|\{\}?|\}")
"""A text is cut wherever an object may begin or end, and only objects are parsed."""
_NO_NUMBER: Final = re.compile(r"(?<=[:,\[\s])-?(?:NaN|Infinity)(?=[,\]}\s])")
"""What Python writes for a number that is none, and the parser does not know."""

Document = dict[str, Any]


class JsonDocuments:
    """The objects of a log, one after another: pretty-printed, one a line, or in one list.

    An object that is not complete when another begins in a new line is left out
    and counted: the logger was killed, and started again. So is one that is
    damaged, and what follows up to the next line that begins with an object.

    Args:
        endless: Key of lists that may be longer than memory. An object with one is handed out
            again and again, each time with what is new in it. Every object in a list is handed
            out by itself then, and found again behind damage, whatever it is in.

    Attributes:
        broken_off: How the log ended in the middle of an object or a list, once it was
            read to its end; ``None``: it did not, or nobody can tell.
    """

    def __init__(
        self,
        lines: Iterator[str],
        *,
        name: str,
        skipped: SkippedLines,
        endless: str | None = None,
    ) -> None:
        self._lines = lines
        self._name = name
        self._skipped = skipped
        self._endless = endless
        self._found: list[tuple[int, Document]] = []
        self._object: _OpenObject | None = None
        self._number = 1
        self._skipped_number = 0
        self._list_began: int | None = None
        self._is_lost = False
        self._is_indented = endless is None  # else an object within another may begin a line
        self.broken_off: str | None = None

    def __iter__(self) -> Iterator[tuple[int, Document]]:
        """Each object with the number of the line it began in.

        Raises:
            UnreadableLogError: An object is larger than ``MAX_DOCUMENT``.
        """
        may_begin = True
        for block in _blocks(self._lines):
            for part in _PARTS.findall(block):
                self._take(part, begins=may_begin and part.startswith("{"))
                self._number += part.count("\n")
                may_begin = part.endswith("\n") or self._endless is not None
                if self._found:
                    yield from self._found
                    self._found.clear()
        began = self._object.began if self._object is not None else self._list_began
        if began is not None:
            self.broken_off = f"the JSON is cut short: what begins at line {began} has no end"
        if self._object is not None:
            self._leave_out(self._object.began)
        yield from self._found

    def _take(self, part: str, *, begins: bool) -> None:
        """Read on; ``begins``: the part stands where another object would begin."""
        was_open = self._object
        if was_open is not None and begins and self._is_indented:
            self._leave_out(was_open.began)
        elif was_open is not None:
            if self._is_read(was_open, part):
                return
            self._leave_out(self._number)
        if begins or (part.startswith("{") and not self._is_lost):
            self._is_lost = False
            self._object = _OpenObject(self._number, self._found, self._endless)
            if not self._is_read(self._object, part):
                self._leave_out(self._number)
        elif was_open is None:
            self._pass_over(part)

    def _is_read(self, current: _OpenObject, part: str) -> bool:
        self._is_indented = self._is_indented and '\n"' not in part
        if not current.read(part, self._number):
            return False
        if current.is_complete:
            self._object = None
        elif current.size > MAX_DOCUMENT:
            raise UnreadableLogError(
                f"{self._name}: line {current.began}: a JSON object that begins here has no end "
                f"within {MAX_DOCUMENT >> 20} MiB"
            )
        return True

    def _leave_out(self, number: int) -> None:
        """Count the open object as damaged, but for what was handed out of it."""
        if self._object is not None:
            self._object.end()
        self._object = self._list_began = None
        self._is_lost = True
        self._skip(number)

    def _pass_over(self, part: str) -> None:
        """Count the lines in which something else than objects stands."""
        for number, line in enumerate(part.split("\n"), start=self._number):
            if line.strip(_BETWEEN):
                self._skip(number)
            elif "[" in line or "]" in line:
                is_begun = line.rfind("[") > line.rfind("]")
                self._list_began = number if is_begun else None

    def _skip(self, number: int) -> None:
        if number != self._skipped_number:
            self._skipped.add(Refusal.DAMAGED_JSON, number)
        self._skipped_number = number


class _OpenObject:
    """An object that is being read, and what is open within it.

    Attributes:
        began: Number of the line it began in.
        size: Characters read since something was handed out.
    """

    def __init__(self, began: int, found: list[tuple[int, Document]], endless: str | None) -> None:
        self.began = began
        self.size = 0
        self._found = found
        self._endless = endless
        self._events = ijson.sendable_list()
        self._parser = ijson.basic_parse_coro(self._events, use_float=True)
        self._inner: Any = None
        self._key = ""
        self._around: list[tuple[Any, str, int]] = []

    @property
    def is_complete(self) -> bool:
        return self._inner is None

    def read(self, text: str, number: int) -> bool:
        """Read on, and hand out what is complete; whether that was possible."""
        self.size += len(text)
        try:
            self._parser.send(text.encode())
            is_read = True
        except (ijson.JSONError, ValueError):
            is_read = False
        is_read = self._build(number) and is_read
        if self.size >= _BLOCK:
            self.hand_out()
        return is_read

    def _build(self, number: int) -> bool:
        """Put together what the parser has told; whether it is not too deep."""
        around, inner, key = self._around, self._inner, self._key
        for event, value in self._events:
            if event == "map_key":
                key = value
                continue
            if event in ("start_map", "start_array"):
                around.append((inner, key, number))
                inner = {} if event == "start_map" else []
                if len(around) > _DEEPEST:
                    return False
                continue
            began = number
            if event in ("end_map", "end_array"):
                value = inner
                inner, key, began = around.pop()
            if isinstance(inner, dict):
                inner[key] = value
            elif event == "end_map" and (inner is None or self._endless is not None):
                self._found.append((began, value))
                self.size = 0
            else:
                inner.append(value)
        self._events.clear()
        self._inner, self._key = inner, key
        return True

    def hand_out(self) -> None:
        """Hand out what the endless list that is open has so far, with what stands before it."""
        opened = [*(outer for outer, _, _ in self._around[1:]), self._inner]
        for (owner, key, began), values in zip(self._around, opened, strict=False):
            is_endless = key == self._endless and isinstance(owner, dict)
            if is_endless and isinstance(values, list) and values:
                self._found.append((began, {**owner, key: values.copy()}))
                values.clear()
                self.size = 0

    def end(self) -> None:
        """Hand out what there is; nothing more will be read."""
        self.hand_out()
        with suppress(ijson.JSONError):  # it was not complete
            self._parser.close()


def _blocks(lines: Iterator[str]) -> Iterator[str]:
    """Lines together, so that short ones take no longer than a long one."""
    block = ""
    for piece in lines:
        block += piece
        if len(block) >= _BLOCK:
            yield _without_odd_numbers(block)
            block = ""
    yield _without_odd_numbers(block)


def _without_odd_numbers(text: str) -> str:
    """Numbers that are none as texts, which say the same.

    >>> _without_odd_numbers('{"gpu": NaN}')
    '{"gpu": "NaN"}'
    """
    is_odd = "NaN" in text or "Infinity" in text
    return _NO_NUMBER.sub(r'"\g<0>"', text) if is_odd else text
