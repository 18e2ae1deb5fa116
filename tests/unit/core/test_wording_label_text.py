"""Tests of text from outside."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.wording import MAX_LABEL_LENGTH, label_text


class TestText:
    @pytest.mark.parametrize(
        "text", ["resnet-50", "run 3 (fp16)", "über", "学习", "אימון", 'a"b\\c']
    )
    def test_stays_if_it_is_printable_in_any_script(self, text: str) -> None:
        assert label_text(text) == text

    @pytest.mark.parametrize(("other", "text"), [(7, "7"), (None, "")])
    def test_may_come_from_a_number_or_none(self, other: object, text: str) -> None:
        assert label_text(other) == text

    @pytest.mark.parametrize(
        "character",
        [
            os.fsdecode(b"\xff"), "\n", "\r", "\0", "\x1b", "\x7f", "\u2028", "\u0085",
            "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff",
        ],
    )  # fmt: skip
    def test_loses_unsafe_characters(self, character: str) -> None:
        assert label_text(f"a{character}b") == "a�b"

    def test_that_is_long_ends_with_an_ellipsis(self) -> None:
        assert label_text("x" * 1_000_000) == "x" * (MAX_LABEL_LENGTH - 1) + "…"


class TestLaws:
    @given(st.text(st.characters(), max_size=300))
    def test_the_result_is_short_printable_utf8_and_idempotent(self, raw: str) -> None:
        text = label_text(raw)

        assert len(text) <= MAX_LABEL_LENGTH
        assert text.isprintable()
        assert text.encode().decode() == text
        assert label_text(text) == text
