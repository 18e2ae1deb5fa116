"""Specification of outside text: whatever a process calls itself, nothing breaks on it."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.wording import MAX_LABEL_LENGTH, label_text


class TestTextThatIsKept:
    @pytest.mark.parametrize(
        "text", ["resnet-50", "run 3 (fp16)", "über", "学习", "אימון", 'a"b\\c']
    )
    def test_is_any_printable_text_in_any_script(self, text: str) -> None:
        assert label_text(text) == text

    def test_is_a_number_as_its_digits(self) -> None:
        assert label_text(7) == "7"

    def test_is_nothing_at_all_for_no_answer(self) -> None:
        assert label_text(None) == ""


class TestTextThatIsReplaced:
    def test_is_a_byte_that_was_no_utf8(self) -> None:
        assert label_text(os.fsdecode(b"bad\xffname")) == "bad�name"

    @pytest.mark.parametrize("character", ["\n", "\r", "\0", "\x1b", "\x7f", "\u2028", "\u0085"])
    def test_is_a_control_or_a_line_break(self, character: str) -> None:
        assert label_text(f"a{character}b") == "a�b"

    @pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200f", "\u200b", "\ufeff"])
    def test_is_a_character_that_turns_the_writing_direction_or_hides(self, character: str) -> None:
        assert label_text(f"a{character}b") == "a�b"

    def test_is_the_end_of_a_long_text_by_an_ellipsis(self) -> None:
        assert label_text("x" * 1_000_000) == "x" * (MAX_LABEL_LENGTH - 1) + "…"


class TestLaws:
    @given(st.text(st.characters(), max_size=300))
    def test_the_outcome_is_short_printable_utf8_and_stays_as_it_is(self, raw: str) -> None:
        text = label_text(raw)

        assert len(text) <= MAX_LABEL_LENGTH
        assert text.isprintable()
        assert text.encode().decode() == text
        assert label_text(text) == text
