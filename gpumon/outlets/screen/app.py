"""The screen that moves. Only it and its parts need textual."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widget import Widget

from gpumon.core.view.palette import DARK
from gpumon.core.view.view import GpuView
from gpumon.errors import GpumonError
from gpumon.outlets.screen.details import Details
from gpumon.outlets.screen.gpu_rows import RowLayout, gpu_name
from gpumon.outlets.screen.ink import Ink, styled
from gpumon.outlets.screen.one_screen import Screenful, clock_time, head_lines
from gpumon.outlets.screen.order import SORT_ORDERS, shown_gpus
from gpumon.outlets.screen.parts import DetailPane, GpuList, KeyLine, TextLines

if TYPE_CHECKING:
    from gpumon.sources.host.process_usage import HostProcess, ProcessUsage

_TALL: Final = 30
"""Lines from which each sentence of the head may have two."""
_LEAST_ROWS: Final = 4
_WANTED_DETAILS: Final = 9
_NO_DETAILS_BELOW: Final = 12
_KEYS: Final = (
    ("q  F10", "quit"),
    ("h  F1  ?", "this help"),
    ("up  down  PgUp  PgDn  Home  End", "choose a GPU; or scroll, in the lower part"),
    ("Tab", "between the GPUs and the lower part"),
    ("o  F6  ,  .", "sort by need, number, busy, lost, memory, power or user"),
    ("/  F4", "show only GPUs with these words: number, state, cause, user, run, command, pid"),
    ("t  F5", "processes as a tree, with their children"),
    ("Space", "pause"),
    ("k  F9", "the command that would end a process: gpumon itself ends none"),
    ("Esc", "back; then without the filter"),
)


class LiveFeed(Protocol):
    """Gives each new tick."""

    def follow(self, show: Callable[[Screenful], None]) -> None:
        """Call ``show`` with each view from now on, on a thread of its own."""
        ...


class TopApp(App[int]):
    """Shows each view of a feed.

    Args:
        feed: Gives them.
        first: What to show until then.
        ink: How to draw.

    Attributes:
        error: Why it has ended; ``None``: a user has ended it.
    """

    TITLE = "gpumon top"
    ENABLE_COMMAND_PALETTE = False
    CSS = f"""
    Screen {{ background: {DARK.ground}; color: {DARK.text}; overflow: hidden; }}
    TextLines {{ scrollbar-size-vertical: 1; overflow-x: hidden; }}
    #head, #heading {{ overflow-y: hidden; }}
    #heading, #keys {{ height: 1; }}
    #details {{ height: 1fr; border-top: solid {DARK.rule}; }}
    #details:focus {{ border-top: solid {DARK.text}; }}
    TopApp.-plain Screen {{ background: ansi_default; color: ansi_default; }}
    TopApp.-plain #details {{ border-top: solid ansi_default; }}
    TopApp.-plain TextLines {{
        scrollbar-color: ansi_default; scrollbar-background: ansi_default;
        scrollbar-color-hover: ansi_default; scrollbar-background-hover: ansi_default;
        scrollbar-color-active: ansi_default; scrollbar-background-active: ansi_default;
    }}
    """
    BINDINGS: ClassVar = [
        Binding("q,Q,f10,ctrl+c,ctrl+q", "quit", show=False),
        Binding("h,question_mark,f1", "overlay('help')", show=False),
        Binding("k,f9", "overlay('kill')", show=False),
        Binding("o,f6,full_stop", "sort(1)", show=False),
        Binding("comma", "sort(-1)", show=False),
        Binding("slash,f4", "filter", show=False),
        Binding("t,f5", "tree", show=False),
        Binding("space", "pause", show=False),
        Binding("escape", "escape", show=False),
        Binding("tab,shift+tab", "other_part", show=False, priority=True),
    ]

    class Arrived(Message):
        """A new view is there."""

        def __init__(self, shown: Screenful) -> None:
            super().__init__()
            self.shown = shown

    def __init__(self, feed: LiveFeed, first: Screenful, ink: Ink) -> None:
        super().__init__(ansi_color=None if ink.has_colour else True)
        self.set_class(not ink.has_colour, "-plain")
        self._feed, self._ink = feed, ink
        self._newest = self._shown = self._first = first
        self._usage: ProcessUsage | None = None
        self._chosen: str | None = None  # its UUID
        self._order = 0
        self._overlay = ""
        self._has_tree = self._is_paused = False
        self._words = ""
        self._gpus: list[GpuView] = []
        self._widths: dict[str, int] = {}
        self._shown_below: tuple[str, str | None] = ("", None)
        self.error: GpumonError | None = None

    def compose(self) -> ComposeResult:
        yield TextLines("head")
        yield TextLines("heading")
        yield GpuList("gpus")
        yield DetailPane("details")
        yield KeyLine(self._ink)

    def on_mount(self) -> None:
        with contextlib.suppress(ValueError, RuntimeError):  # not on the main thread
            # SIGHUP ends the process at once: there is no terminal left to restore.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.query_one(GpuList).focus()
        self._draw()
        self.call_after_refresh(self._feed.follow, self._receive)
        if not gc.isenabled():  # start-up was without it
            gc.freeze()
            gc.enable()

    def _receive(self, shown: Screenful) -> None:
        """Take a view, from any thread."""
        self.post_message(self.Arrived(shown))

    def on_resize(self) -> None:
        self._widths = {}
        self.call_after_refresh(self._draw)

    def on_top_app_arrived(self, event: Arrived) -> None:
        self._newest = event.shown
        if event.shown.error is not None:
            self.error = event.shown.error
            self.exit()
        if not self._is_paused:
            self._shown = event.shown
            self._draw()

    def on_gpu_list_moved(self, event: GpuList.Moved) -> None:
        at = self._at() + event.step if event.at is None else event.at
        if self._gpus:
            self._chosen = self._gpus[min(max(0, at), len(self._gpus) - 1)].uuid
            self._draw()

    def on_key_line_edited(self, event: KeyLine.Edited) -> None:
        self._words, self._widths = event.words, {}
        if event.is_done:
            self.query_one(GpuList).focus()
        self._draw()

    # -- what keys do ------------------------------------------------------------

    def action_overlay(self, name: str) -> None:
        """Show the help or the command to copy, or hide it again."""
        self._overlay = "" if self._overlay == name else name
        self._draw()

    def action_sort(self, step: int) -> None:
        """Take the next order."""
        self._order = (self._order + step) % len(SORT_ORDERS)
        self._draw()

    def action_filter(self) -> None:
        """Edit the words of the filter."""
        self._overlay = ""
        self.query_one(KeyLine).focus()

    def action_tree(self) -> None:
        """Show children of processes, or not."""
        self._has_tree = not self._has_tree
        self._draw()

    def action_pause(self) -> None:
        """Keep what is shown, or go on."""
        self._is_paused = not self._is_paused
        self._shown = self._newest
        self._draw()

    def action_escape(self) -> None:
        """Close what is open, or else show all GPUs."""
        if self._overlay:
            self._overlay = ""
        else:
            self._words = self.query_one(KeyLine).words = ""
        self.query_one(GpuList).focus()
        self._draw()

    def action_other_part(self) -> None:
        """Move the keys to the other part of the screen."""
        rows, details = self.query_one(GpuList), self.query_one(DetailPane)
        (rows if self.focused is details else details).focus()

    # -- drawing -----------------------------------------------------------------

    def _draw(self) -> None:
        shown, (width, height) = self._shown, self.size
        if not width or not height:
            return
        head = head_lines(shown, width, self._ink, most=2 if height >= _TALL else 1)
        head = head[: max(1, height - 4)]
        gpus = () if shown.view is None else shown.view.gpus
        self._gpus = shown_gpus(gpus, SORT_ORDERS[self._order], self._words)
        layout = RowLayout(self._gpus, width - 1, self._ink, self._widths)
        rows, details = self.query_one(GpuList), self.query_one(DetailPane)
        free = max(1, height - len(head) - 2)
        has_details = height >= _NO_DETAILS_BELOW
        room = max(_LEAST_ROWS, free - _WANTED_DETAILS) if has_details else free
        _lay_out(rows, min(len(self._gpus) or 1, room), not (self._overlay and has_details))
        _lay_out(details, None, has_details or bool(self._overlay))
        top = self.query_one("#head", TextLines)
        _lay_out(top, len(head))
        top.show(head)
        self.query_one("#heading", TextLines).show([layout.heading()])
        at = self._at()
        lines = [layout.row(gpu) for gpu in self._gpus] or [self._ink.text(self._why_none())]
        rows.show(self._toned(lines), at if self._gpus else None)
        details.show(self._toned(self._below(at, width - 1)))
        below = (self._overlay, self._gpus[at].uuid if self._gpus else None)
        if below != self._shown_below:
            self._shown_below = below
            details.scroll_home(animate=False)
        self._say(len(gpus))

    def _toned(self, lines: Sequence[Text]) -> list[Text]:
        """The lines, grey while they are not the present."""
        if not self._shown.trouble:
            return [*lines]
        grey = self._ink.colour("unobserved") or "dim"
        return [styled(line.plain, grey) for line in lines]

    def _at(self) -> int:
        """The row of the chosen GPU; the first one until a user chooses, or if it has gone."""
        found = [at for at, gpu in enumerate(self._gpus) if gpu.uuid == self._chosen]
        return found[0] if found else 0

    def _why_none(self) -> str:
        return f"no GPU has {self._words!r}: Esc shows all" if self._words else "no GPU"

    def _below(self, at: int, width: int) -> list[Text]:
        if self._overlay == "help":
            return self._help(width)
        view = self._shown.view
        if view is None or not self._gpus:
            return []
        gpu = self._gpus[at]
        if self._overlay == "kill":
            return self._kill(gpu, width)
        usage = self._processes(gpu) if self._shown.is_local and not self._is_paused else None
        lines = Details(view, width, self._ink).lines(gpu, usage)
        for note in view.notes:
            lines += self._ink.paragraph(note, width, first="Note: ")
        return lines

    def _processes(self, gpu: GpuView) -> list[HostProcess]:
        """What the processes of a GPU use of this machine; nothing before the first new tick."""
        if self._usage is None:
            if self._shown is self._first:
                return []
            from gpumon.sources.host.process_usage import ProcessUsage  # psutil takes 15 ms

            self._usage = ProcessUsage()
        return self._usage.read(pids_of(gpu), tree=self._has_tree)

    def _help(self, width: int) -> list[Text]:
        ink = self._ink
        lines = [
            line for keys, what in _KEYS for line in ink.paragraph(what, width, first=f"{keys:32}")
        ]
        about = (
            "The bar of lost time and the last ten minutes have the colours of the "
            "causes. docs/top.md explains each column."
        )
        return [*lines, Text(), *ink.paragraph(about, width)]

    def _kill(self, gpu: GpuView, width: int) -> list[Text]:
        ink, pids = self._ink, pids_of(gpu)
        if not pids:
            return ink.paragraph(f"no process is known on {gpu_name(gpu)}", width)
        where = "" if self._shown.is_local else ", on the machine of the daemon"
        return [
            *ink.paragraph(f"gpumon ends no process. To end one yourself{where}:", width),
            *(ink.text(f"  kill {pid}", "bold") for pid in pids),
            *ink.paragraph("Esc goes back.", width),
        ]

    def _say(self, count: int) -> None:
        """Say in the last line what is unusual."""
        facts = []
        if self._is_paused:
            at_s = 0.0 if self._shown.view is None else self._shown.view.wall_time_s
            facts.append(f"PAUSED at {clock_time(at_s)}")
        if self._words:
            facts.append(f"/{self._words}: {len(self._gpus)} of {count} GPUs")
        if self._order:
            facts.append(f"sorted by {SORT_ORDERS[self._order].name}")
        keys = self.query_one(KeyLine)
        keys.state = "  ".join(facts)
        keys.refresh()


def _lay_out(part: Widget, height: int | None, is_shown: bool = True) -> None:
    """Give a part its height, if that differs: each change makes textual lay out everything."""
    if part.display != is_shown:
        part.display = is_shown
    known = part.styles.height
    if height is not None and (known is None or known.cells != height):
        part.styles.height = height


def pids_of(gpu: GpuView) -> list[int]:
    """The processes on a GPU, the one that holds it first."""
    held = [] if gpu.held_by is None else [gpu.held_by.pid]
    return [*dict.fromkeys([*held, *(process.pid for process in gpu.processes or ())])]


def run_screen(feed: LiveFeed, first: Screenful, ink: Ink) -> int:
    """Show the screen until a user ends it; returns the exit code.

    Raises:
        GpumonError: The feed has ended with it.
    """
    app = TopApp(feed, first, ink)
    app.run()
    if app.error is not None:
        raise app.error
    return app.return_code or 0
