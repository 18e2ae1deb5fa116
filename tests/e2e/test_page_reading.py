"""The live page to a reader: with a selection, a screen reader, no script, on paper, enlarged."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.sixteen_gpus import LOST, STARVED_GPU
from tests.builders.state import device, healthy_gpu, run
from tests.e2e.open_page import OnwardClock, Show, Visit, now, showing, sixteen, story
from tests.needs import in_make_truth

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
RIGHT_TO_LEFT = "\u05d0\u05d1\u05d2\u202e evil \x1b[31m <b>x</b>"
SELECT = """() => {
  const [from, to] = [document.querySelector(".lane h3"), document.querySelector(".lane .advice")];
  getSelection().setBaseAndExtent(from, 0, to, to.childNodes.length);
}"""
MARK = """() => {
  for (const one of document.querySelectorAll("body *")) one.seenBefore = true;
}"""
NEW = """() => [...document.querySelectorAll("body *")]
  .filter((one) => !one.seenBefore && !one.closest("#axis")).map((one) => one.outerHTML)"""
PAPER, FILTER = (f"one => getComputedStyle(one).{name}" for name in ("backgroundColor", "filter"))
ANIMATED = "() => document.getAnimations().length"


@pytest.fixture
def shown(show: Show) -> Callable[..., Visit]:
    states = sixteen()
    return lambda **size: show(*states[:-20], clock=OnwardClock(states[-1]), **size)


def let_pass(page: Visit, ticks: int = 20) -> None:
    for state in sixteen()[-ticks:]:
        page.server.publish(state)
        page.page.wait_for_timeout(25)


class TestATick:
    def test_leaves_a_selection_as_it_is(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        page.page.evaluate(SELECT)
        before = page.page.evaluate("getSelection().toString()")
        let_pass(page)

        assert f"GPU {LOST}" in before
        assert page.page.evaluate("getSelection().toString()") == before

    def test_replaces_no_element(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        page.page.locator(".open-details").nth(1).click()
        let_pass(page, 3)
        page.page.evaluate(MARK)
        let_pass(page)

        assert page.page.evaluate(NEW) == []
        assert page.page.evaluate(ANIMATED) == 0

    def test_moves_the_lane_with_the_keyboard_in_it_without_losing_it(self, show: Show) -> None:
        page = show(*story(60))
        page.page.locator(".plot").nth(1).focus()
        name = page.page.evaluate("document.activeElement.ariaLabel")
        page.server.publish(story(61)[-1])
        page.page.wait_for_timeout(200)

        assert page.page.evaluate("document.activeElement.ariaLabel") == name


class TestWithoutAScript:
    def test_the_page_names_state_user_and_advice_of_each_gpu(self, browser: Browser) -> None:
        states = sixteen()
        with (
            showing(*states[-3:], clock=OnwardClock(states[-1])) as server,
            browser.new_context(java_script_enabled=False) as context,
        ):
            page = context.new_page()
            page.goto(f"http://{server.address}/")
            rows = [row.inner_text() for row in page.locator("#plain tbody tr").all()]
            headline, seen = page.locator("h1").inner_text(), page.locator("body").inner_text()

        assert headline.startswith(f"GPU {LOST} lost since ")
        assert len(rows) == 16
        assert "Reboot, or power-cycle the machine" in rows[0]
        assert "starved since" in rows[1]
        assert "alice" in rows[1]
        assert "The disk is the limit" in seen


class TestNames:
    def test_are_text_and_keep_to_their_place(self, show: Show) -> None:
        page = show(
            now(
                gpus=(healthy_gpu(device=device(0, "GPU-0", name=RIGHT_TO_LEFT)),),
                runs=(run(RIGHT_TO_LEFT, gpu_uuids=("GPU-0",)),),
            )
        )
        page.until("#run-table", "evil")

        assert page.count("b b, bdi b, td b") == 0
        for selector in (".lane h3 .name", "#run-table .name"):
            name = page.page.locator(selector)
            assert name.inner_text() == "\u05d0\u05d1\u05d2\ufffd evil \ufffd[31m <b>x</b>"
            assert name.evaluate("one => getComputedStyle(one).unicodeBidi") == "isolate"


class TestAnyScreen:
    @pytest.mark.parametrize(
        ("width", "height", "scheme"),
        [(1280, 800, "light"), (1280, 800, "dark"), (390, 844, "dark"), (640, 400, "light")],
    )  # the last is 1280 x 800 enlarged to 200 %
    def test_has_nothing_wider_than_itself(
        self, shown: Callable[..., Visit], width: int, height: int, scheme: str, tmp_path: Path
    ) -> None:
        page = shown(width=width, height=height, scheme=scheme)
        let_pass(page, 1)
        folder = Path(os.environ.get("GPUMON_SCREENSHOTS", tmp_path))
        page.page.screenshot(path=folder / f"sixteen-{width}-{scheme}.png")

        assert page.page.evaluate(TOO_WIDE) <= 0
        assert page.count(".lane") >= 1
        boxes = [one.bounding_box() for one in page.page.locator(".tile").all()]
        assert all(box and box["width"] >= 80 and box["height"] >= 40 for box in boxes)

    def test_is_printed_on_light_paper_with_all_advice(self, shown: Callable[..., Visit]) -> None:
        page: Any = shown(scheme="dark").page
        page.emulate_media(media="print", color_scheme="dark")
        page.set_viewport_size({"width": 1000, "height": 700})

        paper = page.locator("section >> nth=0").evaluate(
            "one => getComputedStyle(one).backgroundColor"
        )
        assert paper == "rgb(255, 255, 255)"
        assert page.evaluate(TOO_WIDE) <= 0
        assert "The disk is the limit" in page.locator("body").inner_text()
        assert not page.locator("#choices").is_visible()

    def test_moves_nothing_by_itself(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        page.page.emulate_media(reduced_motion="reduce")

        assert page.page.evaluate(ANIMATED) == 0


class TestTheTab:
    def test_names_the_worst_and_shows_its_tone(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        let_pass(page, 1)
        page.page.wait_for_selector("#banner", state="hidden")

        assert page.page.title() == f"GPU {LOST}: lost · gpumon"
        assert page.page.locator("#icon").get_attribute("href") == "/favicon-bad.svg"

    def test_shows_that_the_daemon_is_gone_and_that_it_is_back(
        self, visit: Callable[..., Visit]
    ) -> None:
        with showing(*story(30)) as server:
            address = server.address
            page = visit(address)
            page.is_in_trouble = True
            page.page.wait_for_selector("#grid")
            page.page.wait_for_timeout(500)
        page.until("#banner", "Connection to the daemon lost")
        assert page.page.title() == "no connection · gpumon"
        assert page.page.locator("#icon").get_attribute("href") == "/favicon-gone.svg"
        assert "grayscale" in page.page.locator("main").evaluate(
            "one => getComputedStyle(one).filter"
        )

        with showing(now(gpus=(healthy_gpu(),)), listen=address):
            page.until("#sentence", "GPU 1 lost little time")
            assert page.is_hidden("#banner")
            assert page.page.title().startswith("1.0 % of GPU time lost")
            assert page.page.locator("#icon").get_attribute("href") == "/favicon-good.svg"


class TestTwoPages:
    @in_make_truth
    def test_show_the_same(self, visit: Callable[..., Visit]) -> None:
        states = sixteen()
        with showing(*states[:-5], clock=OnwardClock(states[-1])) as server:
            pages = [visit(server.address), visit(server.address)]
            for page in pages:
                page.page.wait_for_selector("#grid")
            for state in states[-5:]:
                server.publish(state)
            for page in pages:
                page.until(f".tile >> nth={STARVED_GPU}", "starved")
                page.page.wait_for_timeout(1_000)
            texts = [page.text("#tiles") for page in pages]
        for page in pages:
            page.is_in_trouble = True  # their server is gone

        assert all(one == other for one, other in pairwise(texts))
