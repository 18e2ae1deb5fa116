"""The parts of the screen that moves, as widgets of textual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from gpumon.core.view.palette import DARK
from gpumon.outlets.screen.ink import Ink

_BOLD: Final = Style(bold=True)
_CHOSEN: Final = Style(bold=True, bgcolor=DARK.rule)
_CHOSEN_WITHOUT_COLOUR: Final = Style(reverse=True)
_FOOTER: Final = "q quit  h help  o sort  / filter  t tree  Space pause  k command"


class TextLines(ScrollView, can_focus=False):
    """Lines of text, cut at the right; scrolls if there are more than it has room for."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.lines: list[Text] = []
        self.cursor: int | None = None
        self._ground = Style()  # its style costs as much to find as a line to draw

    def show(self, lines: Sequence[Text], cursor: int | None = None) -> None:
        """Show these lines; the one at ``cursor`` is marked and kept in sight."""
        before, cursor_before = self.lines, self.cursor
        self._ground = self.rich_style
        self.lines, self.cursor = [*lines], cursor
        if len(before) != len(lines) or self.virtual_size.width != self.size.width:
            self.virtual_size = Size(self.size.width, len(lines))
        if cursor is not None and cursor != cursor_before:
            self.keep_in_sight(cursor)
        if self.lines != before or cursor != cursor_before:
            self.refresh()

    def keep_in_sight(self, at: int) -> None:
        """Scroll so that a line can be seen."""
        height, top = max(1, self.size.height), round(self.scroll_y)
        if at < top:
            self.scroll_to(y=at, animate=False)
        elif at >= top + height:
            self.scroll_to(y=at - height + 1, animate=False)

    def render_line(self, y: int) -> Strip:
        at = y + round(self.scroll_y)
        if at >= len(self.lines):
            return Strip.blank(self.size.width, self._ground)
        strip = Strip(self.lines[at].render(self.app.console))
        strip = strip.adjust_cell_length(self.size.width).apply_style(self._ground)
        if at == self.cursor:
            strip = Strip(_chosen(one, self._ground) for one in strip)
        return strip


class GpuList(TextLines, can_focus=True):
    """The rows of the GPUs, one of them chosen."""

    BINDINGS: ClassVar = [
        Binding("up", "choose(-1)", show=False),
        Binding("down", "choose(1)", show=False),
        Binding("pageup", "choose(-10)", show=False),
        Binding("pagedown", "choose(10)", show=False),
        Binding("home,g", "choose(-10000)", show=False),
        Binding("end,G", "choose(10000)", show=False),
    ]

    class Moved(Message):
        """Another row is chosen: ``step`` rows further down, or the one at ``at``."""

        def __init__(self, step: int = 0, at: int | None = None) -> None:
            super().__init__()
            self.step, self.at = step, at

    def action_choose(self, step: int) -> None:
        """Choose another row."""
        self.post_message(self.Moved(step=step))

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Moved(at=event.y + round(self.scroll_y)))


class DetailPane(TextLines, can_focus=True):
    """What is known of the chosen GPU; or the help."""


class KeyLine(Widget, can_focus=True):
    """The last line: keys and state; while it has the focus, the words of the filter."""

    class Edited(Message):
        """The words of the filter have changed."""

        def __init__(self, words: str, *, is_done: bool) -> None:
            super().__init__()
            self.words, self.is_done = words, is_done

    def __init__(self, ink: Ink) -> None:
        super().__init__(id="keys")
        self.words = ""
        self.state = ""
        self._ink = ink

    def render(self) -> Text:
        if self.has_focus:
            return self._ink.text(f"/{self.words}█" if self._ink.unicode else f"/{self.words}_")
        return self._ink.text(
            f"{self.state}  {_FOOTER}" if self.state else _FOOTER, self._ink.colour("quiet")
        )

    def on_key(self, event: events.Key) -> None:
        """Edit the words, while it has the focus."""
        is_done = event.key in ("enter", "escape", "tab", "up", "down")
        if event.key == "escape":
            self.words = ""
        elif event.key == "backspace":
            self.words = self.words[:-1]
        elif event.is_printable and event.character is not None:
            self.words += event.character
        elif not is_done:
            return
        event.stop()
        event.prevent_default()
        self.post_message(self.Edited(self.words, is_done=is_done))
        self.refresh()

    def on_paste(self, event: events.Paste) -> None:
        self.words += " ".join(event.text.split())
        self.post_message(self.Edited(self.words, is_done=False))
        self.refresh()


def _chosen(segment: Segment, ground: Style) -> Segment:
    """A segment of the chosen row: on another ground, unless it has its own."""
    style = segment.style or ground
    if ground.bgcolor is None or ground.bgcolor.is_default:
        return Segment(segment.text, style + _CHOSEN_WITHOUT_COLOUR)
    has_own = style.bgcolor is not None and style.bgcolor != ground.bgcolor
    return Segment(segment.text, style + (_BOLD if has_own else _CHOSEN))
