"""Paints a picture as PNG, with Pillow: the one file that knows it."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Final

from gpumon.errors import UsageError
from gpumon.outlets.plot.drawing import LIGHT, Anchor, Box, Drawing, Ink, Line, Mark, Steps, Text

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont
    from PIL.ImageFont import ImageFont as BitmapFont

SCALE: Final = 2
"""Pixels to a point."""
_HATCH: Final = 10
_ANCHORS: Final = {Anchor.START: "ls", Anchor.MIDDLE: "ms", Anchor.END: "rs"}
_OTHER_FONTS: Final = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf")
"""For letters that Pillow's own font lacks: it has those of ASCII."""


def require_pillow() -> None:
    """See that a PNG can be painted here.

    Raises:
        UsageError: It cannot; says what to install, and what needs nothing.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont

        ImageFont.load_default(12)
        del Image, ImageDraw
    except (ImportError, TypeError) as error:  # TypeError: a Pillow before 10.1
        raise UsageError(
            "a PNG needs Pillow 10.1 or newer, built with FreeType: "
            f"`{sys.executable} -m pip install 'pillow>=10.1'`; "
            "`--plot FILE.svg` and `--html FILE` need nothing"
        ) from error


def png_bytes(drawing: Drawing) -> bytes:
    """A PNG, two pixels to a point.

    Raises:
        UsageError: Pillow is not installed, or too old.
    """
    require_pillow()
    from PIL import Image, ImageDraw

    size = (round(drawing.width * SCALE), round(drawing.height * SCALE))
    image = Image.new("RGB", size, LIGHT[Ink.PAPER])
    brush = _Brush(image, ImageDraw.Draw(image))
    for mark in drawing.marks:
        brush.paint(mark)
    packed = io.BytesIO()
    image.save(packed, "PNG", optimize=True)
    return packed.getvalue()


class _Brush:
    """Paints marks, whole pixels only: an edge is where its time is, and sharp."""

    def __init__(self, image: Image, draw: ImageDraw) -> None:
        self._image = image
        self._draw = draw
        self._fonts: dict[tuple[float, bool], FreeTypeFont | BitmapFont] = {}

    def paint(self, mark: Mark) -> None:
        if isinstance(mark, Box):
            self._box(mark)
        elif isinstance(mark, Steps):
            self._steps(mark)
        elif isinstance(mark, Line):
            ends = (mark.left, mark.top, mark.right, mark.bottom)
            self._draw.line([round(end * SCALE) for end in ends], fill=LIGHT[mark.ink])
        else:
            self._text(mark)

    def _box(self, box: Box) -> None:
        if box.ink is Ink.NONE:
            return
        left, top = round(box.left * SCALE), round(box.top * SCALE)
        right = max(left + 1, round((box.left + box.width) * SCALE)) - 1
        bottom = max(top + 1, round((box.top + box.height) * SCALE)) - 1
        if box.ink is Ink.UNOBSERVED:
            self._hatch(left, top, right, bottom)
        else:
            self._draw.rectangle((left, top, right, bottom), fill=LIGHT[box.ink])

    def _hatch(self, left: int, top: int, right: int, bottom: int) -> None:
        """Slanting lines, in step with those of every other box."""
        from PIL import Image, ImageDraw

        width, height = right - left + 1, bottom - top + 1
        mask = Image.new("1", (width, height))
        lines = ImageDraw.Draw(mask)
        for slant in range(left + top - (left + top) % _HATCH, right + bottom + _HATCH, _HATCH):
            across = slant - left - top
            lines.line((across, 0, across - height, height), fill=1, width=2)
        self._image.paste(LIGHT[Ink.UNOBSERVED], (left, top), mask)

    def _steps(self, steps: Steps) -> None:
        colour, bottom = LIGHT[steps.ink], round(steps.bottom * SCALE) - 1
        for number, height in enumerate(steps.heights):
            top = round((steps.bottom - height) * SCALE)
            if top > bottom:
                continue
            left = round((steps.left + number * steps.column_width) * SCALE)
            right = round((steps.left + (number + 1) * steps.column_width) * SCALE) - 1
            if right >= left:
                self._draw.rectangle((left, top, right, bottom), fill=colour)

    def _text(self, text: Text) -> None:
        font = self._font(text)
        place = (text.left * SCALE, round(text.baseline * SCALE))
        for shift in (0, 1) if text.bold else (0,):  # the font has no bold face
            self._draw.text(
                (place[0] + shift, place[1]),
                text.words,
                fill=LIGHT[text.ink],
                font=font,
                anchor=_ANCHORS[text.anchor],
            )

    def _font(self, text: Text) -> FreeTypeFont | BitmapFont:
        is_plain = text.words.replace("\N{HORIZONTAL ELLIPSIS}", "").isascii()
        key = (text.size, is_plain)
        if key not in self._fonts:
            self._fonts[key] = _font_of(text.size * SCALE, is_plain=is_plain)
        return self._fonts[key]


def _font_of(size: float, *, is_plain: bool) -> FreeTypeFont | BitmapFont:
    from PIL import ImageFont

    for name in () if is_plain else _OTHER_FONTS:
        try:
            return ImageFont.truetype(name, size)
        except OSError:  # noqa: PERF203  (not on this machine)
            continue
    return ImageFont.load_default(size)
