"""Specification of JSON in logs: objects one after another, however they are laid out or cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs import json_documents
from gpumon.sources.logs.json_documents import JsonDocuments
from gpumon.sources.logs.table.skipped_lines import SkippedLines

ONE: dict[str, Any] = {"a": 1, "of": [{"x": "}{"}, None]}
TWO: dict[str, Any] = {"b": "}", "c": {"d": "{"}}


def pieces_of(text: str, size: int) -> Iterator[str]:
    """Lines, the long ones in pieces, as a log's text hands them on."""
    for line in text.splitlines(keepends=True):
        yield from (line[at : at + size] for at in range(0, len(line), size))


def objects_in(text: str, size: int = 1 << 16) -> tuple[list[tuple[int, Any]], int]:
    """The objects with their lines, and how much was skipped."""
    skipped = SkippedLines()
    return list(JsonDocuments(pieces_of(text, size), name="x", skipped=skipped)), skipped.count


class TestObjects:
    @pytest.mark.parametrize(
        "text",
        [
            f"{json.dumps(ONE)}\n{json.dumps(TWO)}\n",
            f"{json.dumps(ONE, indent=4)}\n{json.dumps(TWO, indent=4)}\n",
            json.dumps([ONE, TWO]),
            json.dumps([ONE, TWO], indent=2),
            json.dumps(ONE) + json.dumps(TWO),
            f"\ufeff{json.dumps(ONE)}\r\n\r\n{json.dumps(TWO)}",
        ],
        ids=["one a line", "pretty", "list", "pretty list", "end to end", "with blanks"],
    )
    @pytest.mark.parametrize("size", [7, 1 << 16])
    def test_are_found_in_any_layout(self, text: str, size: int) -> None:
        found, skipped = objects_in(text, size)

        assert [value for _, value in found] == [ONE, TWO]
        assert skipped == 0

    def test_know_the_line_they_begin_in(self) -> None:
        found, _ = objects_in(f"\n{json.dumps(ONE, indent=1)}\n{json.dumps(TWO)}\n")

        assert [number for number, _ in found] == [2, 2 + json.dumps(ONE, indent=1).count("\n") + 1]

    def test_that_are_cut_short_are_counted_and_the_next_one_is_read(self) -> None:
        cut = json.dumps(ONE, indent=4)[:-20]

        found, skipped = objects_in(f"{cut}\n{json.dumps(TWO, indent=4)}\n{cut}")

        assert [value for _, value in found] == [TWO]
        assert skipped == 2

    def test_are_found_between_lines_that_are_none(self) -> None:
        found, skipped = objects_in(f"Error: no driver\n{json.dumps(ONE)}\nbye\n")

        assert ([value for _, value in found], skipped) == ([ONE], 2)

    @pytest.mark.parametrize("text", ['{"a":' * 100_000, "{" * 100_000, '{"a": ' + "9" * 5_000])
    def test_that_no_parser_can_hold_are_counted(self, text: str) -> None:
        assert objects_in(text) == ([], 1)

    def test_without_an_end_are_refused_before_they_fill_the_memory(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(json_documents, "MAX_DOCUMENT", 1 << 20)

        with pytest.raises(UnreadableLogError, match=r"line 1: a JSON object .* has no end"):
            objects_in('{"a": [' + "1," * (1 << 20), 1 << 16)

    @given(
        st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=6), max_size=3), max_size=5),
        st.sampled_from([None, 0, 2]),
        st.integers(1, 40),
    )
    def test_come_out_as_they_went_in(
        self, documents: list[dict[str, str]], indent: int | None, size: int
    ) -> None:
        text = "".join(json.dumps(one, indent=indent) + "\n" for one in documents)

        found, skipped = objects_in(text, size)

        assert ([value for _, value in found], skipped) == (documents, 0)
