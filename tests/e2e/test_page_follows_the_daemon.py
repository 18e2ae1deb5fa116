"""A live page that stays open keeps up with its daemon, and says so when it no longer can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.state import S, healthy_gpu
from tests.daemon import RunningDaemon
from tests.e2e.open_page import Show, Visit, now, showing, story
from tests.needs import in_make_truth
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def age(page: Visit) -> float:
    return float(page.text("#age").removeprefix("last sample ").removesuffix(" s ago"))


class TestAsTimeGoesOn:
    def test_every_tick_renews_the_figures(self, show: Show) -> None:
        *reported, last = story(61)
        page = show(*reported)
        page.until("#sentence", "[Ss]tarved")
        page.page.locator(".open-details").first.click()
        page.until(".times >> nth=0", "60.0 s")
        page.server.publish(last)
        page.until("#run-table", r"1220")

        assert "61.0 s" in page.text(".times >> nth=0")

    def test_the_page_that_was_open_first_follows_from_the_first_sample(self, show: Show) -> None:
        page = show()
        page.until("#sentence", "Waiting for the first sample")
        for state in story(20):
            page.server.publish(state)

        page.until("#sentence", "[Ss]tarved")

    def test_a_daemon_that_does_not_sample_any_more_is_shown_so(self, show: Show) -> None:
        stale = [state._replace(taken_at_ns=state.taken_at_ns - 60 * S) for state in story(60)]

        show(*stale).until("#banner", r"has not sampled for 6\d\.\d.s")

    def test_a_daemon_that_is_gone_is_shown_so_and_its_return_is_noticed(
        self, visit: Callable[..., Visit]
    ) -> None:
        with showing(*story(30)) as server:
            address = server.address
            page = visit(address)
            page.is_in_trouble = True
            page.page.wait_for_selector("#grid")
        page.until("#banner", "Connection to the daemon lost .* What you see is old")
        first = age(page)
        page.page.wait_for_timeout(700)
        assert age(page) > first

        with showing(now(gpus=(healthy_gpu(),)), listen=address) as again:
            page.until("#sentence", r"GPU 1 lost little time")

            assert page.is_hidden("#banner")
            assert again.address == address


SOURCE = ("--source", "simulated:healthy", "--period", "0.5")
SEEN = """() => document.querySelector(".plot").getAttribute("aria-valuetext")"""


class TestARestartedDaemon:
    @in_make_truth
    def test_goes_on_in_the_open_page_which_shows_that_it_was_not_running(
        self, visit: Callable[..., Visit], tmp_path: Path
    ) -> None:
        with RunningDaemon(tmp_path, *SOURCE) as daemon:
            address = daemon.address
            page = visit(address)
            page.is_in_trouble = True
            page.page.wait_for_selector("#grid")
            page.page.wait_for_timeout(12_000)
        page.until("#banner", "Connection to the daemon lost")
        page.page.wait_for_timeout(8_000)

        with RunningDaemon(tmp_path, *SOURCE, "--listen", address):
            page.page.wait_for_selector("#banner", state="hidden", timeout=1_000 * PATIENCE_S)
            page.page.get_by_role("button", name="10 min", exact=True).click()
            page.until("#legend", "gpumon was not running")
            page.page.wait_for_selector("#legend [data-gap=not_running]:visible")
            page.page.locator(".plot").first.focus()
            page.page.keyboard.press("End")
            seen = set()
            for _ in range(20):
                seen.add(page.page.evaluate(SEEN).partition(": ")[2].partition(" ")[0])
                page.page.keyboard.press("ArrowLeft")

        assert {"busy", "gpumon"} <= seen
