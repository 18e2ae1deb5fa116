"""The series of a Prometheus answer, read as a stream: one document may be one endless line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.json_documents import broken_off_at
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines

_BLOCK: Final = 1 << 16
_MAX_LABELS: Final = 1 << 18
"""Characters that the labels of one series may take."""
_TAIL: Final = 1 << 9
"""Kept of what was searched in vain: a key may lie across two blocks."""
_END_OF_TIME_S: Final = 9e9
"""The year 2255: nanoseconds up to there are a number of 64 bits."""
_KEY: Final = re.compile(
    r'"(?P<key>metric|values)"\s*:\s*(?=[{\[])'
    r'|"(?P<word>resultType|status|error)"\s*:\s*"(?P<said>(?:[^"\\]|\\.){0,300})'
    r'|"(?P<single>value)"\s*:\s*\['
)
_PAIR: Final = re.compile(r'\[\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*,\s*"([^"\\]{0,40})"\s*\]')
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LAST_PAIR: Final = re.compile(r"\]\s*\]")
_ADVICE: Final = (
    "ask for a range, such as `curl 'http://HOST:9090/api/v1/query_range?query="
    "DCGM_FI_DEV_GPU_UTIL&start=...&end=...&step=1'`"
)


class SeriesPart(NamedTuple):
    """Some values of one series, in the order of the answer.

    Attributes:
        labels: Of the series; the same object in all its parts.
        pairs: Seconds since 1970, and the value as Prometheus writes it.
        number: Of the line they are in.
    """

    labels: dict[str, str]
    pairs: list[tuple[float, str]]
    number: int


class MatrixScan:
    """Finds the series of an answer. Memory does not grow with the answer.

    Attributes:
        broken_off: How the answer ended before its end, once it was read to there;
            ``None``: it did not, or nobody can tell.
    """

    def __init__(self, lines: Iterator[str], *, name: str, skipped: SkippedLines) -> None:
        self._blocks = _blocks(lines)
        self._name = name
        self._skipped = skipped
        self._text = ""
        self._at = 0
        self._number = 1
        self._nesting = _Nesting()
        self.broken_off: str | None = None

    def parts(self) -> Iterator[SeriesPart]:
        """Every series, part by part.

        Raises:
            UnreadableLogError: An answer that has no series over time, or a
                refusal of Prometheus; says what to ask.
        """
        labels: dict[str, str] | None = None
        while True:
            found = self._next_key()
            if found is None:
                return
            if found["key"] == "metric":
                labels = self._labels()
            elif found["key"] == "values":
                owner, labels = labels or {}, None
                yield from self._values(owner)
            else:
                self._object_to(found)

    def _next_key(self) -> re.Match[str] | None:
        while True:
            found = _KEY.search(self._text, self._at)
            # What reaches to the end may be cut short by it.
            if found is not None and found.end() < len(self._text):
                self._nesting.pass_over(self._text[self._at : found.start()])
                if found["word"] == "status":
                    self._nesting.begin()
                # A word's closing quote goes with it.
                self._at = found.end() + (found["word"] is not None)
                return found
            if len(self._text) - self._at > _TAIL:
                self._nesting.lose()
                self._at = len(self._text) - _TAIL
            if not self._more():
                self._nesting.pass_over(self._text[self._at :])
                if self._nesting.is_open:
                    self.broken_off = broken_off_at(self._number)
                return None

    def _more(self) -> bool:
        """Forget what was read, and read on; whether there was anything."""
        self._number += self._text.count("\n", 0, self._at)
        block = next(self._blocks, "")
        self._text = self._text[self._at :] + block
        self._at = 0
        return bool(block)

    def _labels(self) -> dict[str, str]:
        decode = json.JSONDecoder().raw_decode
        while True:
            try:
                value, end = decode(self._text, self._at)
            except (ValueError, RecursionError):
                is_short = len(self._text) - self._at < _MAX_LABELS
                if is_short and self._more():
                    continue
                self._nesting.lose()
                if is_short:
                    self.broken_off = broken_off_at(self._number)
                self._skipped.add(Refusal.DAMAGED_JSON, self._number)
                return {}
            self._at = end
            if not isinstance(value, dict):
                return {}
            return {key: str(said) for key, said in value.items()}

    def _values(self, labels: dict[str, str]) -> Iterator[SeriesPart]:
        self._at += 1  # the bracket that opens them
        while True:
            text, start = self._text, self._at
            while start < len(text) and text[start] in " \t\r\n,":
                start += 1
            if text.startswith("]", start):
                self._at = start + 1
                return
            closing = _LAST_PAIR.search(text, start)
            end = closing.start() + 1 if closing is not None else text.rfind("]", start) + 1
            if end > start:
                number = self._number + text.count("\n", 0, start)
                self._at = end
                yield SeriesPart(labels, self._pairs(text[start:end], number), number)
                continue
            self._at = start
            is_short = len(text) - start <= _MAX_LABELS
            if is_short and self._more():
                continue
            self._nesting.lose()
            if is_short:
                self.broken_off = broken_off_at(self._number)
            self._skipped.add(Refusal.DAMAGED_JSON, self._number)
            return

    def _pairs(self, text: str, number: int) -> list[tuple[float, str]]:
        try:
            pairs: list[Any] = json.loads(f"[{text}]")
        except (ValueError, RecursionError):
            pairs = []
        if pairs and _are_pairs(pairs):
            return pairs
        read = ((float(moment), value) for moment, value in _PAIR.findall(text))
        found = [pair for pair in read if _are_pairs([list(pair)])]
        lost = text.count("[") - len(found)
        for _ in range(max(lost, 1)):
            self._skipped.add(Refusal.DAMAGED_JSON, number)
        return found

    def _object_to(self, found: re.Match[str]) -> None:
        """Refuse an answer that says it is none, or none over time."""
        word, said = found["word"], found["said"]
        if found["single"] or (word == "resultType" and said != "matrix"):
            what = "values of one moment" if found["single"] else f"a {said}"
            raise UnreadableLogError(
                f"{self._name}: Prometheus gave {what}, not series over time; {_ADVICE}"
            )
        if word == "error":
            raise UnreadableLogError(
                f"{self._name}: Prometheus refused the query: {said}; {_ADVICE}"
            )


def _are_pairs(pairs: list[Any]) -> bool:
    """Whether all are a moment and a text. Millions are asked about: without a loop in Python."""
    if set(map(type, pairs)) != {list} or set(map(len, pairs)) != {2}:
        return False
    moments_s, values = zip(*pairs, strict=True)
    if set(map(type, values)) != {str} or not set(map(type, moments_s)) <= {int, float}:
        return False
    # The sum is finite only if no moment is NaN.
    return bool(min(moments_s) >= 0 and max(moments_s) < _END_OF_TIME_S and sum(moments_s) >= 0)


def _blocks(lines: Iterator[str]) -> Iterator[str]:
    """Lines in blocks, so that a pretty-printed answer is no slower than one in one line."""
    waiting: list[str] = []
    size = 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield "".join(waiting)
            waiting.clear()
            size = 0
    if waiting:
        yield "".join(waiting)


class _Nesting:
    """Counts the brackets of what is passed over between the parts that others read."""

    def __init__(self) -> None:
        self._depth: int | None = 0

    def begin(self) -> None:
        """A document begins: its first bracket is passed over, whatever was before."""
        self._depth = 1

    def lose(self) -> None:
        """Something was not passed over: nobody can tell any more."""
        self._depth = None

    def pass_over(self, text: str) -> None:
        r"""Count a part of the text, which must not begin within a string.

        >>> nesting = _Nesting()
        >>> nesting.pass_over('{"a{": ['); nesting.is_open
        True
        >>> nesting.pass_over("]}"); nesting.is_open
        False
        """
        if self._depth is None:
            return
        bare = _STRING.sub("", text)
        if '"' in bare:
            bare = bare[: bare.index('"')] + "["  # a string that has no end
        opened = bare.count("{") + bare.count("[")
        self._depth = max(0, self._depth + opened - bare.count("}") - bare.count("]"))

    @property
    def is_open(self) -> bool:
        """Whether a bracket has no counterpart yet; ``False`` too where nobody can tell."""
        return bool(self._depth)
