"""Tests of the screen that moves, with textual's own pilot in place of a terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from gpumon.core.view.palette import DARK
from gpumon.core.view.view import MonitorView
from gpumon.errors import NoDaemonError
from gpumon.outlets.screen.app import TopApp
from gpumon.outlets.screen.ink import Ink
from gpumon.outlets.screen.one_screen import Screenful
from gpumon.outlets.screen.parts import DetailPane, GpuList, KeyLine, TextLines
from gpumon.outlets.text.style import TextStyle
from tests.builders.view import gpu_view, held, sixteen, starved, view

DAEMON = "daemon at 127.0.0.1:19835"
Act = Callable[["Opened"], Awaitable[None]]
_Result = TypeVar("_Result")


class ScriptedFeed:
    """A feed that a test drives."""

    show: Callable[[Screenful], None]

    def follow(self, show: Callable[[Screenful], None]) -> None:
        self.show = show


class Opened:
    """The app on a terminal, and what it shows."""

    def __init__(self, app: TopApp, pilot: Any, feed: ScriptedFeed) -> None:
        self.app, self._pilot, self._feed = app, pilot, feed

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self._pilot.pause()

    async def receive(self, machine: MonitorView | None, trouble: str = "") -> None:
        self._feed.show(Screenful(machine, DAEMON, trouble, 1_796_048_590.0))
        await self._pilot.pause()

    async def resize(self, columns: int, lines: int) -> None:
        await self._pilot.resize_terminal(columns, lines)
        await self._pilot.pause()

    async def click(self, part: str, line: int) -> None:
        await self._pilot.click(part, offset=(3, line))
        await self._pilot.pause()

    @property
    def rows(self) -> list[str]:
        return [line.plain for line in self.app.query_one(GpuList).lines]

    @property
    def labels(self) -> list[str]:
        return [" ".join(row.split()[:2]) for row in self.rows]

    @property
    def chosen(self) -> str:
        at = self.app.query_one(GpuList).cursor
        assert at is not None
        return self.labels[at]

    @property
    def below(self) -> str:
        return "\n".join(line.plain for line in self.app.query_one(DetailPane).lines)

    @property
    def head(self) -> str:
        lines = self.app.query_one("#head", TextLines).lines
        return "\n".join(line.plain for line in lines)

    @property
    def keys(self) -> str:
        return self.app.query_one(KeyLine).render().plain


def run_alone(whole: Coroutine[Any, Any, _Result]) -> _Result:
    """Run it, but not on this thread: a browser of other tests has a loop there."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, whole).result()


def on_screen(
    act: Act, machine: MonitorView | None = None, size: tuple[int, int] = (100, 30)
) -> int | None:
    async def run() -> int | None:
        feed = ScriptedFeed()
        first = Screenful(sixteen() if machine is None else machine, DAEMON)
        app = TopApp(feed, first, Ink(TextStyle(colour=True)))
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await act(Opened(app, pilot, feed))
        return app.return_code

    return run_alone(run())


def test_it_begins_with_the_gpu_in_greatest_need() -> None:
    async def act(screen: Opened) -> None:
        assert screen.labels[:4] == ["GPU 9", "GPU 3", "GPU 12", "GPU 13"]
        assert screen.chosen == "GPU 9"
        assert "has been lost (XID 79)" in screen.below
        assert "Verdict: GPU 9 lost since 14:03 UTC · GPU 3 starved" in screen.head

    on_screen(act)


@pytest.mark.parametrize("key", ["q", "f10", "ctrl+c"])
def test_a_key_ends_it(key: str) -> None:
    async def act(screen: Opened) -> None:
        await screen.press(key)

    assert on_screen(act) == 0


def test_arrows_choose_a_gpu_and_the_choice_follows_it() -> None:
    async def act(screen: Opened) -> None:
        await screen.press("down")
        assert screen.chosen == "GPU 3"
        assert "Keep the data set in memory" in screen.below
        await screen.receive(view(gpu_view("0"), gpu_view("1"), starved("3")))
        assert screen.chosen == "GPU 3"
        await screen.press("up", "up", "up")
        assert screen.chosen == "GPU 0"
        await screen.receive(view(gpu_view("1")))
        assert screen.chosen == "GPU 1"

    on_screen(act)


def test_a_click_chooses_a_gpu() -> None:
    async def act(screen: Opened) -> None:
        await screen.click("#gpus", 2)
        assert screen.chosen == "GPU 12"

    on_screen(act)


@pytest.mark.parametrize("keys", [("o",), ("f6",), ("full_stop",), ("comma",) * 6])
def test_keys_sort(keys: tuple[str, ...]) -> None:
    async def act(screen: Opened) -> None:
        await screen.press(*keys)
        assert screen.labels == [f"GPU {at}" for at in range(16)]
        assert "sorted by number" in screen.keys

    on_screen(act)


def test_words_filter_and_escape_shows_all() -> None:
    async def act(screen: Opened) -> None:
        await screen.press("slash", *"Bob", "enter")
        assert screen.labels == ["GPU 12", "GPU 13"]
        assert "/Bob: 2 of 16 GPUs" in screen.keys
        await screen.press("f4", *"q", "enter")
        assert screen.rows == ["no GPU has 'Bobq': Esc shows all"]
        await screen.press("escape")
        assert len(screen.rows) == 16

    on_screen(act)


def test_pause_keeps_what_is_shown() -> None:
    async def act(screen: Opened) -> None:
        await screen.press("space")
        await screen.receive(view(gpu_view("0")))
        assert len(screen.rows) == 16
        assert "PAUSED at 14:23:01 UTC" in screen.keys
        await screen.press("space")
        assert screen.labels == ["GPU 0"]

    on_screen(act)


@pytest.mark.parametrize("key", ["h", "f1", "question_mark"])
def test_help_lists_the_keys_until_escape(key: str) -> None:
    async def act(screen: Opened) -> None:
        await screen.press(key)
        assert "F10" in screen.below
        await screen.press("escape")
        assert "F10" not in screen.below

    on_screen(act)


def test_it_shows_the_command_that_ends_a_process_and_ends_none() -> None:
    async def act(screen: Opened) -> None:
        await screen.press("k")
        assert "  kill 815" in screen.below.splitlines()
        assert "gpumon ends no process" in screen.below

    on_screen(act, view(held("12")))


def test_a_daemon_that_goes_turns_it_grey_and_comes_back_by_itself() -> None:
    async def act(screen: Opened) -> None:
        machine = view(starved("3"))
        await screen.receive(machine, "the gpumon daemon has ended")
        assert "The gpumon daemon has ended (since 14:23:10 UTC)" in screen.head
        assert {str(span.style) for span in screen.app.query_one(GpuList).lines[0].spans} == {
            DARK.unobserved
        }
        await screen.receive(machine)
        assert "has ended" not in screen.head
        assert len(screen.app.query_one(GpuList).lines[0].spans) > 1

    on_screen(act)


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ((80, 24), 0),
        ((80, 24), 1),
        ((1, 1), 1),
        ((20, 6), 64),
        ((250, 60), 64),
        ((80, 3), 64),
    ],
)
def test_any_size_and_any_number_of_gpus_can_be_shown(size: tuple[int, int], count: int) -> None:
    async def act(screen: Opened) -> None:
        await screen.press("end", "h", "escape", "k", "escape", "tab", "down", "tab", "pageup")
        assert len(screen.rows) == max(1, count)

    on_screen(act, view(*(starved(f"{at}") for at in range(count))), size)


def test_a_terminal_that_is_resized_while_it_draws() -> None:
    async def act(screen: Opened) -> None:
        for columns, lines in ((20, 5), (200, 60), (81, 25), (40, 80)):
            await screen.receive(sixteen())
            await screen.resize(columns, lines)
            assert max(len(row) for row in screen.rows) < columns

    on_screen(act)


def test_the_chosen_gpu_is_kept_in_sight() -> None:
    async def act(screen: Opened) -> None:
        rows = screen.app.query_one(GpuList)
        await screen.press("end")
        assert screen.chosen == "GPU 63"
        assert rows.scroll_y + rows.size.height == 64
        await screen.press("home")
        assert rows.scroll_y == 0

    on_screen(act, view(*(gpu_view(f"{at}") for at in range(64))), (80, 24))


def test_nothing_yet_is_a_sentence() -> None:
    async def act(screen: Opened) -> None:
        await screen.receive(None, "nothing yet: no GPU has been read")
        assert "nothing yet" in screen.head

    on_screen(act)


def test_without_colours_the_chosen_row_is_reversed() -> None:
    async def run() -> None:
        app = TopApp(ScriptedFeed(), Screenful(sixteen(), DAEMON), Ink(TextStyle(colour=False)))
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            rows = app.query_one(GpuList)
            styles = [[one.style for one in rows.render_line(at)] for at in range(3)]
            assert all(style is not None and style.reverse for style in styles[0])
            for style in (one for row in styles for one in row if one is not None):
                assert style.color is None or style.color.is_default
                assert style.bgcolor is None or style.bgcolor.is_default

    run_alone(run())


def test_an_error_of_the_feed_ends_it() -> None:
    async def run() -> None:
        feed = ScriptedFeed()
        app = TopApp(feed, Screenful(None, "watching nvml"), Ink(TextStyle()))
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            error = NoDaemonError("gone")
            feed.show(Screenful(None, "watching nvml", error=error))
            await pilot.pause()
            assert app.error is error

    run_alone(run())


def test_the_lower_part_scrolls_and_is_at_its_top_for_another_gpu() -> None:
    async def act(screen: Opened) -> None:
        details = screen.app.query_one(DetailPane)
        await screen.press("down", "tab", "end")
        assert details.scroll_y > 0
        await screen.press("tab", "down")
        assert details.scroll_y == 0

    on_screen(act, size=(80, 16))
