"""Which time the lanes show: live, a stretch before now, or any span; and what is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gpumon.core.view.palette import LIGHT
from tests.e2e.open_page import OnwardClock, Show, Visit, sixteen, story
from tests.needs import in_make_truth

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOUR_S, CELL_S = 3_600, 10
STOPPED_S, SLEPT_S = (2_400, 2_100), (1_500, 1_200)
"""How long ago gpumon was not running, and was running but did not watch."""
KEPT_S = 3_000
PICTURE = """(canvas, ratio) => {
  const size = { width: 12, height: canvas.height };
  const copy = Object.assign(document.createElement("canvas"), size);
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 6 - Math.round(ratio * canvas.width), 0);
  return [...pen.getImageData(0, 0, 12, canvas.height).data].join();
}"""
SPANS = """() => [...document.querySelectorAll(".plot")].map((plot) =>
  Number(plot.getAttribute("aria-valuemax")) - Number(plot.getAttribute("aria-valuemin")))"""
SLEEP = """byMs => {
  const { now } = Date;
  Date.now = () => now() + byMs;
}"""


class Store:
    """Answers for spans as a daemon that keeps the last fifty minutes.

    Attributes:
        asked: The spans, in seconds.
    """

    def __init__(self, page: Visit, uuids: list[str]) -> None:
        self.uuids = uuids
        self.asked: list[tuple[float, float]] = []
        page.page.route(re.compile(r"/api/v1/history\?"), self._answer)

    def _answer(self, route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        from_s, to_s = (float(query[end][0]) for end in ("from", "to"))
        self.asked.append((from_s, to_s))
        route.fulfill(status=200, content_type="application/json", body=self._body(from_s, to_s))

    def _body(self, from_s: float, to_s: float) -> str:
        count = round((to_s - from_s) / CELL_S)
        ago = [to_s - from_s - (at + 0.5) * CELL_S for at in range(count)]
        seen = [
            0.0 if within(age, STOPPED_S) or within(age, SLEPT_S) or age > KEPT_S else CELL_S
            for age in ago
        ]
        gpu = {
            "label": "0",
            "name": "NVIDIA H200",
            "parts": {"busy": seen},
            "observed": seen,
            "levels": {"power_watts": [600.0 if one else None for one in seen]},
            "runs": [[to_s - 1_000, to_s - 500, "resnet50"]],
        }
        return json.dumps(
            {
                "schema": "gpumon.history/1",
                "from_s": from_s,
                "to_s": to_s,
                "cell_seconds": CELL_S,
                "kept_from_s": to_s - KEPT_S,
                "now_s": to_s,
                "not_running": [[to_s - STOPPED_S[0], to_s - STOPPED_S[1]]],
                "gpus": dict.fromkeys(self.uuids, gpu),
            }
        )


def within(age_s: float, span: tuple[int, int]) -> bool:
    return span[1] <= age_s <= span[0]


@pytest.fixture
def shown(show: Show) -> Callable[..., Visit]:
    states = sixteen()
    return lambda **size: show(*states, clock=OnwardClock(states[-1]), **size)


def with_store(page: Visit) -> Store:
    return Store(page, [gpu.device.uuid for gpu in sixteen()[-1].gpus])


def choose(page: Visit, name: str) -> None:
    page.page.get_by_role("button", name=name, exact=True).click()


def pointed_at(page: Visit, ratio: float) -> str:
    """What the first lane shows at that part of its width."""
    box = page.page.locator(".plot").first.bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + ratio * box["width"], box["y"] + box["height"] / 2)
    return page.text(".readout >> nth=0")


def chosen(page: Visit) -> str:
    return page.text("#choices [aria-pressed=true]:visible")


class TestTheTimeShown:
    def test_is_live_first_with_a_clock_axis(self, shown: Callable[..., Visit]) -> None:
        page = shown()

        assert chosen(page) == "Live"
        assert page.page.evaluate(SPANS)[0] == 600
        marks = page.texts("#axis span")
        assert len(marks) >= 4
        assert all(re.fullmatch(r"\d\d:\d\d", mark) for mark in marks)

    def test_of_an_hour_comes_from_the_store_and_is_asked_for_once(
        self, shown: Callable[..., Visit]
    ) -> None:
        page = shown()
        store = with_store(page)
        choose(page, "1 h")
        page.until("#legend", "gpumon was not running")
        page.server.publish(sixteen()[-1])
        page.page.wait_for_timeout(300)

        assert chosen(page) == "1 h"
        assert page.page.evaluate(SPANS)[0] == HOUR_S
        assert page.page.url.endswith("#last=3600")
        assert [round(to_s - from_s) for from_s, to_s in store.asked] == [HOUR_S]

    def test_has_three_names_and_looks_for_what_is_not_known(
        self, shown: Callable[..., Visit]
    ) -> None:
        page = shown()
        with_store(page)
        choose(page, "1 h")
        page.until("#legend", "gpumon was not running")

        read = {age_s: pointed_at(page, 1 - age_s / HOUR_S) for age_s in (3_300, 2_250, 1_350, 900)}
        assert read[3_300].endswith(": older than is kept")
        assert read[2_250].endswith(": gpumon was not running")
        assert read[1_350].endswith(": not watched")
        assert read[900].endswith(": busy 100 % · resnet50")
        pictures = [
            page.page.locator(".plot canvas").first.evaluate(
                PICTURE,
                1 - age_s / HOUR_S,
            )
            for age_s in (3_300, 2_250, 1_350)
        ]
        assert len({*pictures}) == 3

    def test_is_a_span_that_was_dragged_over_a_lane(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        pointed_at(page, 0.25)
        page.page.mouse.down()
        pointed_at(page, 0.75)
        page.page.mouse.up()

        assert page.page.evaluate(SPANS)[0] == pytest.approx(300, abs=4)
        assert "#from=" in page.page.url
        page.page.locator("#own-span").click()
        assert chosen(page) == "Live"

    def test_is_live_where_the_daemon_keeps_no_more_than_the_last_minutes(
        self, shown: Callable[..., Visit]
    ) -> None:
        page = shown()
        choose(page, "1 h")
        page.page.wait_for_timeout(300)

        assert pointed_at(page, 0.5).endswith(": older than is kept")
        assert "busy" in pointed_at(page, 0.9)

    @in_make_truth
    def test_is_asked_for_seldom_while_no_answer_comes(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        page.is_in_trouble = True
        page.page.route(re.compile(r"/api/v1/history\?"), lambda route: route.abort())
        choose(page, "1 h")
        page.page.wait_for_timeout(2_000)

        assert len([url for url in page.requested if "history?" in url]) == 1

    def test_has_the_levels_of_a_gpu_on_request(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        with_store(page)
        page.page.locator(".open-details").nth(1).click()
        page.page.wait_for_selector(".level:visible")

        words = page.text(".details >> nth=1")
        for text in ("busy 45 %", "memory 42 GiB", "power 327 W", "SM clock 1755 MHz", "alice"):
            assert text in words.replace("\n", " ")


class TestAnAddress:
    @pytest.mark.parametrize(
        ("fragment", "sentence"),
        [
            ("last=315360000", "longer than a year"),
            ("from=1000&to=2000000000", "longer than a year|in the future"),
            ("from=4000000000&to=4000000060", "in the future"),
            ("from=1700000600&to=1700000000", "ends before it begins"),
            ("from=1700000000&to=1700000000", "shorter than a second"),
            ("from=1..2&to=5", "no number of seconds"),
            ("yesterday", "names no span"),
            ("%E0%A4%A", "names no span"),
        ],
    )
    def test_that_names_no_good_span_is_refused_in_one_sentence(
        self, show: Show, fragment: str, sentence: str
    ) -> None:
        page = show(*story(30))
        page.page.evaluate("to => { location.hash = to; }", fragment)
        page.until("#refused", sentence)

        assert chosen(page) == "Live"
        assert page.text("#refused").count(".") == 1 or "#last=" in page.text("#refused")
        choose(page, "10 min")
        assert page.is_hidden("#refused")

    def test_that_names_a_span_opens_it(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        now_s = sixteen()[-1].wall_time_s
        page.page.goto(f"{page.origin}/#from={now_s - 200:.0f}&to={now_s - 100:.0f}")
        page.page.reload()
        page.page.wait_for_selector(".plot")

        assert page.page.evaluate(SPANS)[0] == 100

    def test_is_refused_by_the_daemon_in_its_own_words(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        page.is_in_trouble = True  # Chromium reports the 400
        page.page.route(
            re.compile(r"/api/v1/history\?"),
            lambda route: route.fulfill(status=400, body="The span must be at most 30 days long."),
        )
        page.page.evaluate("() => { location.hash = 'last=8000000'; }")
        page.until("#refused", "^The span must be at most 30 days long.$")

        assert chosen(page) == "Live"


class TestAnHour:
    @in_make_truth
    def test_leaves_ten_minutes_on_the_page_without_a_hole(self, show: Show) -> None:
        states = story(HOUR_S)
        page = show(*states[:300])
        for state in states[300:]:
            page.server.publish(state)
            if state.samples_total % 300 == 0:
                page.page.wait_for_timeout(50)
        page.until("#run-table", rf"{20 * HOUR_S}")

        assert page.page.evaluate(SPANS)[0] == 600
        read = [pointed_at(page, ratio) for ratio in (0.02, 0.3, 0.6, 0.95)]
        assert all(re.search("(busy|waiting for input|checkpoints) ", text) for text in read)

    def test_in_which_the_clock_is_set_back_moves_all_of_it(self, show: Show) -> None:
        states = story(61)
        page = show(*states[:60])
        before = pointed_at(page, 0.9)
        last = states[60]
        page.server.publish(last._replace(wall_time_s=last.wall_time_s - HOUR_S))
        page.until("#run-table", "1220")
        pointed_at(page, 0.4)

        assert before[:2] == "22"
        assert pointed_at(page, 0.9)[:2] == "21"
        assert page.texts("#axis span")[0][:2] == "21"


class TestAMachineThatWasAsleep:
    def test_asks_for_what_it_missed(self, shown: Callable[..., Visit]) -> None:
        page = shown()
        asked = len([url for url in page.requested if url.endswith("/api/v1/history")])
        streams = len([url for url in page.requested if url.endswith("/api/v1/stream")])
        page.page.evaluate(SLEEP, 3_600_000)
        page.page.wait_for_function(
            "count => performance.getEntriesByName(`${origin}/api/v1/history`).length > count",
            arg=asked,
        )

        assert len([url for url in page.requested if url.endswith("/api/v1/stream")]) > streams
        assert "Connection" not in page.text("#banner")


def test_busy_time_has_the_colour_of_the_palette(shown: Callable[..., Visit]) -> None:
    style = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    page: Any = shown().page

    assert page.evaluate(style, "--part-busy") == LIGHT.busy
