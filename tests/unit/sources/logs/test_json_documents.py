"""Tests of JSON in logs: objects one after another, in any layout, complete or cut short."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs import json_documents
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.table.cell_values import SkippedLines

ONE: dict[str, Any] = {"a": 1, "of": [{"x": "}{"}, None]}
TWO: dict[str, Any] = {"b": "}", "c": {"d": "{"}}
LAYOUTS = {
    "one a line": f"{json.dumps(ONE)}\n{json.dumps(TWO)}\n",
    "pretty": f"{json.dumps(ONE, indent=4)}\n{json.dumps(TWO, indent=4)}\n",
    "not indented": f"{json.dumps(ONE, indent=0)}\n{json.dumps(TWO, indent=0)}\n",
    "list": json.dumps([ONE, TWO]),
    "pretty list": json.dumps([ONE, TWO], indent=2),
    "list, not indented": json.dumps([ONE, TWO], indent=0),
    "end to end": json.dumps(ONE) + json.dumps(TWO),
    "with blanks": f"\ufeff{json.dumps(ONE)}\r\n\r\n{json.dumps(TWO)}",
}
TOO_MUCH = {
    "objects": '{"a":' * 100_000,
    "lists": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no keys": "{" * 100_000,
    "an endless number": '{"a": ' + "9" * 5_000,
    "a large number": '{"a": ' + "9" * 5_000 + "}",
}


def pieces_of(text: str, size: int) -> Iterator[str]:
    """Lines, the long ones in pieces, as ``LogText.lines`` yields them."""
    for line in text.splitlines(keepends=True):
        yield from (line[at : at + size] for at in range(0, len(line), size))


def objects_in(text: str, size: int = 1 << 16) -> tuple[list[tuple[int, Document]], int]:
    """The objects with their lines, and the number of skipped lines."""
    skipped = SkippedLines()
    documents = JsonDocuments(pieces_of(text, size), name="x", skipped=skipped)
    return list(documents), skipped.count


class TestObjects:
    @pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS)
    @pytest.mark.parametrize("size", [7, 1 << 16])
    def test_are_found_in_any_layout(self, text: str, size: int) -> None:
        found, skipped = objects_in(text, size)

        assert [value for _, value in found] == [ONE, TWO]
        assert skipped == 0

    @pytest.mark.parametrize("indent", [None, 2])
    def test_that_are_damaged_are_counted_with_all_in_them_and_the_next_one_is_read(
        self, indent: int | None
    ) -> None:
        damaged = json.dumps(ONE, indent=indent).replace('"a": ', '"a" ')

        found, skipped = objects_in(f"{damaged}\n{json.dumps(TWO)}")

        assert found == [(damaged.count("\n") + 2, TWO)]
        assert skipped > 0

    def test_that_are_cut_short_are_counted_and_the_next_one_is_read(self) -> None:
        cut = json.dumps(ONE, indent=4)[:-20]

        found, skipped = objects_in(f"{cut}\n{json.dumps(TWO, indent=4)}\n{cut}")

        assert [value for _, value in found] == [TWO]
        assert skipped == 2

    def test_have_their_line_and_may_lie_between_other_lines(self) -> None:
        text = f"Error: no driver\n{json.dumps(ONE, indent=1)}\nagain\n{json.dumps(TWO)}\nbye\n"

        second = 3 + json.dumps(ONE, indent=1).count("\n") + 1
        assert objects_in(text) == ([(2, ONE), (second, TWO)], 3)

    def test_may_have_the_numbers_that_only_python_writes(self) -> None:
        odd = {"a": float("nan"), "b": [-float("inf"), float("inf")], "c": "NaN or Infinity"}

        read = {"a": "NaN", "b": ["-Infinity", "Infinity"], "c": "NaN or Infinity"}
        assert objects_in(json.dumps(odd)) == ([(1, read)], 0)

    @pytest.mark.parametrize("text", TOO_MUCH.values(), ids=TOO_MUCH)
    def test_that_no_parser_can_read_are_counted(self, text: str) -> None:
        assert objects_in(text) == ([], 1)

    def test_without_end_are_refused_before_they_fill_the_memory(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(json_documents, "MAX_DOCUMENT", 1 << 20)

        with pytest.raises(UnreadableLogError, match=r"line 1: .* end"):
            objects_in('{"a": [' + "1," * (1 << 20), 1 << 16)
