"""Tests of numbers in messages, without powers of ten, and of text from outside."""

from __future__ import annotations

import os
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.wording import (
    MAX_LABEL_LENGTH,
    in_about,
    in_gpu_time,
    in_percent,
    in_time,
    in_unit_of,
    label_text,
    parts_in_unit_of,
    plainly,
)


class TestAPowerOfTen:
    @pytest.mark.parametrize(
        ("duration_ns", "expected"),
        [(74_000, "0.000074 s"), (70_000, "0.00007 s"), (1, "0.000000001 s"), (0, "0 s"),
         (40_000_000, "0.04 s"), (94_999_999, "0.09 s"), (-70_000, "-0.00007 s")],
    )  # fmt: skip
    def test_is_not_in_a_short_time(self, duration_ns: int, expected: str) -> None:
        assert in_time(duration_ns) == expected

    @pytest.mark.parametrize(
        ("value", "digits", "expected"),
        [(86_400.0, 6, "86,400"), (1_036_800.0, 6, "1,036,800"), (0.25, 6, "0.25"), (1.0, 6, "1"),
         (5e-06, 6, "0.000005"), (0.0, 6, "0"), (86_412.0, 3, "86,400"), (0.0123456, 3, "0.0123")],
    )  # fmt: skip
    def test_is_not_in_a_number(self, value: float, digits: int, expected: str) -> None:
        assert plainly(value, digits) == expected

    @given(st.integers(min_value=-(10**6), max_value=10**20))
    def test_is_in_no_time(self, duration_ns: int) -> None:
        for words in (in_time, in_about, in_gpu_time):
            assert "e" not in words(duration_ns).split()[0]

    def test_is_not_in_a_share_near_a_limit(self) -> None:
        assert in_percent(0.05 - 1e-7, 0.05) == "4.99999 %"
        assert in_percent(0.05 - 1e-12, 0.05) == "5.000000 %"

    @given(st.floats(0.0, 1e9))
    def test_is_in_no_share(self, ratio: float) -> None:
        assert "e" not in in_percent(ratio)


def figure(cell: str | None) -> Decimal:
    return Decimal("0" if cell is None else cell.split()[0].replace(",", ""))


class TestPartsOfAnAmount:
    @given(
        st.integers(1, 10**17).flatmap(
            lambda like_ns: st.tuples(
                st.just(like_ns), st.lists(st.integers(0, like_ns), min_size=1, max_size=8)
            )
        )
    )
    def test_add_up_to_it_as_printed_and_each_is_rounded_up_or_down(
        self, given_ns: tuple[int, list[int]]
    ) -> None:
        like_ns, parts_ns = given_ns

        cells = parts_in_unit_of(like_ns, parts_ns)

        whole = in_unit_of(like_ns, sum(parts_ns))
        assert sum(map(figure, cells)) == figure(whole)
        digits = figure(whole).as_tuple().exponent
        assert isinstance(digits, int)
        grain = Decimal(1).scaleb(digits)
        unit_s = {"s": 1, "min": 60, "h": 3600}[whole.split()[1]]
        for cell, part_ns in zip(cells, parts_ns, strict=True):
            assert cell is None or cell.split()[1] == whole.split()[1]
            assert abs(figure(cell) - Decimal(part_ns) / (unit_s * 10**9)) < grain

    def test_are_left_out_if_they_are_too_short_to_show(self) -> None:
        assert parts_in_unit_of(60 * 10**9, [10**10, 10**6, 0]) == ["10.0 s", None, None]


class TestTextFromOutside:
    @pytest.mark.parametrize(
        "text", ["resnet-50", "run 3 (fp16)", "über", "学习", "אימון", 'a"b\\c']
    )
    def test_stays_if_it_is_printable_in_any_script(self, text: str) -> None:
        assert label_text(text) == text

    @pytest.mark.parametrize(
        "character",
        [
            os.fsdecode(b"\xff"), "\n", "\r", "\0", "\x1b", "\x7f", "\u2028", "\u0085",
            "\u202e", "\u2066", "\u200f", "\u200b", "\ufeff",
        ],
    )  # fmt: skip
    def test_loses_unsafe_characters(self, character: str) -> None:
        assert label_text(f"a{character}b") == "a�b"

    def test_ends_with_an_ellipsis_if_long(self) -> None:
        assert label_text("x" * 1_000_000) == "x" * (MAX_LABEL_LENGTH - 1) + "…"

    @given(st.text(st.characters(), max_size=300))
    def test_becomes_short_printable_utf8_and_stays_so(self, raw: str) -> None:
        text = label_text(raw)

        assert len(text) <= MAX_LABEL_LENGTH
        assert text.isprintable()
        assert text.encode().decode() == text
        assert label_text(text) == text
