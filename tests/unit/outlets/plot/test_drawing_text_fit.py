"""Specification of text that fits: measured by the widest of the usual fonts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageFont

from gpumon.outlets.plot.drawing import fitted, in_lines, text_width

SENTENCES = [
    "Starvation suspected (high loss): GPU 0 works in bursts and pauses 40 % of its time in use.",
    "NVIDIA GeForce RTX 3090 Ti", "NVIDIA A100-SXM4-80GB", "2026-03-01", "23:59:59", "J, j; J!",
    "suspected starvation: 738.8 s in 91 stretches",
]  # fmt: skip


def font(name: str) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(name, 100)
    except OSError:
        pytest.skip(f"{name} is not on this machine")


class TestAWidth:
    @pytest.mark.parametrize("words", SENTENCES)
    def test_is_at_least_that_of_the_widest_font(self, words: str) -> None:
        assert font("DejaVuSans.ttf").getlength(words) <= text_width(words, 100)

    @pytest.mark.parametrize("words", SENTENCES)
    def test_is_so_for_bold_letters_too(self, words: str) -> None:
        assert font("DejaVuSans-Bold.ttf").getlength(words) <= text_width(words, 100, bold=True)

    @pytest.mark.parametrize("words", SENTENCES)
    def test_is_at_least_that_of_the_font_of_a_png(self, words: str) -> None:
        assert ImageFont.load_default(100).getlength(words) <= text_width(words, 100)


class TestTextThatIsFitted:
    @given(st.text(max_size=60), st.floats(0, 300))
    def test_is_never_wider_than_its_room(self, words: str, room: float) -> None:
        assert text_width(fitted(words, room, 10), 10) <= room

    def test_stays_as_it_is_where_it_fits(self) -> None:
        assert fitted("GPU 0", 100, 10) == "GPU 0"

    def test_ends_with_an_ellipsis_where_it_does_not(self) -> None:
        assert fitted("NVIDIA A100-SXM4-80GB", 60, 10).endswith("…")


class TestLines:
    @given(st.text(max_size=200), st.integers(1, 3))
    def test_are_few_and_none_is_wider_than_its_room(self, words: str, most: int) -> None:
        lines = in_lines(words, 80, 10, most=most)

        assert 1 <= len(lines) <= most
        assert all(text_width(line, 10) <= 80 for line in lines)

    def test_do_not_part_a_gpu_from_its_number(self) -> None:
        assert in_lines("the lost GPU 12 is", 70, 10)[0] == "the lost"

    def test_do_not_part_a_number_from_its_unit(self) -> None:
        lines = in_lines("it pauses 40 % of its time", 62, 10)

        assert lines[0] == "it pauses"
        assert lines[1].startswith("40 %")
