"""The live page in a real browser: it says what is lost, to what, and keeps saying it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.core.state import MonitorState
from gpumon.outlets.http_server import HttpServer
from tests.builders_state import RunningClock, S, healthy_gpu, monitor_state, run, starved_gpu
from tests.serving import dial, serving
from tests.story_of_states import starved_and_healthy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
ADVICE = {
    "cause": "input_wait",
    "lost_seconds": 30.0,
    "speedup_upper_bound": 1.5,
    "evidence": "GPU 0 was idle for 30.0 s while the training waited for input.",
    "text": "Prefetch batches while the GPU works.",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    missing = None
    if CHROMIUM is None:
        missing = "chromium is not installed (apt-get install chromium)"
    elif importlib.util.find_spec("playwright") is None:
        missing = "playwright is not installed (pip install playwright)"
    if missing is not None:
        if os.environ.get("CI"):
            pytest.fail(f"in CI the browser must be there: {missing}")
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


class Visit:
    """An open page, and everything that went wrong in it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.faults: list[str] = []
        self.requested: list[str] = []
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: self.requested.append(request.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def text(self, selector: str) -> str:
        # A figure and its unit are held together by a space that does not break.
        return self.page.locator(selector).inner_text().replace("\u00a0", " ")

    def until(self, selector: str, pattern: str) -> None:
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_text(re.compile(pattern), timeout=5_000)


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    pages: list[Page] = []

    def open_page(server: HttpServer, width: int = 1280, scheme: Any = "light") -> Visit:
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        pages.append(page)
        visited = Visit(page, f"http://{server.address}")
        page.goto(f"{visited.origin}/")
        return visited

    yield open_page
    for page in pages:
        page.close()


def showing(
    *states: MonitorState,
    report: Callable[[float | None], Mapping[str, Any]] = lambda _: {"advice": []},
    listen: str = "127.0.0.1:0",
) -> AbstractContextManager[HttpServer]:
    """A server whose ages are true."""
    return serving(*states, report=report, listen=listen, clock=RunningClock())


def recent(state: MonitorState) -> MonitorState:
    """The same state, as if its tick were now."""
    shift_ns = time.monotonic_ns() - state.taken_at_ns
    return state._replace(
        taken_at_ns=state.taken_at_ns + shift_ns,
        gpus=tuple(
            gpu._replace(last_sample_at_ns=gpu.last_sample_at_ns + shift_ns)
            if gpu.last_sample_at_ns is not None
            else gpu
            for gpu in state.gpus
        ),
    )


def story(seconds: int) -> list[MonitorState]:
    """The last so many seconds, ending now."""
    return [*starved_and_healthy(seconds, started_ns=time.monotonic_ns() - seconds * S)]


@pytest.mark.parametrize("width", [1280, 390])
class TestAtBothWidths:
    def test_the_first_screen_says_what_is_lost_and_what_to_do(
        self, visit: Any, width: int
    ) -> None:
        with showing(*story(60), report=lambda _: {"advice": [ADVICE]}) as server:
            page = visit(server, width)
            page.until("#sentence", "starved")
            page.until("#next", "Prefetch")

            assert re.fullmatch(
                r"GPU 0 is starved and GPU 2 probably is: waiting for input cost "
                r"[\d.]+ s \(\d+ %\) of the \d min \d+ s in use, [\d.]+ s of it only suspected\.",
                page.text("#sentence"),
            )
            assert page.text("#why") == ADVICE["evidence"]
            assert "at most 1.50 times as fast" in page.text("#gain")
            assert re.fullmatch(r"last sample \d+\.\d s ago", page.text("#age"))
            assert page.text("#simulated") == "simulated GPU: made-up hardware"

    def test_nothing_scrolls_sideways(self, visit: Any, width: int) -> None:
        long = run("a-very-long-run-name-" * 6, framework="keras/tensorflow")
        state = recent(monitor_state(runs=(long, run("b"))))
        with showing(*story(60)[:-1], state) as server:
            page = visit(server, width)
            page.until("#runs", "a-very-long")

            overhang = page.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overhang <= 0

    def test_no_word_in_the_console_and_no_request_to_elsewhere(
        self, visit: Any, width: int
    ) -> None:
        with showing(*story(30), report=lambda _: {"advice": []}) as server:
            page = visit(server, width)
            page.until("#sentence", "starved")
            page.page.wait_for_timeout(500)

            assert page.faults == []
            assert {"/", "/page.js", "/page.css", "/api/v1/stream", "/api/v1/history"} <= {
                url.removeprefix(page.origin) for url in page.requested
            }
            assert [url for url in page.requested if not url.startswith(page.origin)] == []


class TestTheLanes:
    def test_are_one_for_each_gpu_in_the_colours_of_its_time(self, visit: Any) -> None:
        with showing(*story(60)) as server:
            page = visit(server)
            page.until("#sentence", "starved")

            assert page.page.locator("canvas.lane").count() == 3
            starved, healthy, _ = (colours(page, number) for number in range(3))

        red, green = (217, 56, 30), (90, 168, 151)
        assert starved[red] > 0.25
        assert starved[green] > 0.25
        assert healthy.get(red, 0) == 0
        assert healthy[green] > 0.75

    def test_leave_time_that_was_not_observed_empty(self, visit: Any) -> None:
        with showing(*story(6)) as server:
            page = visit(server)
            page.until("#sentence", "starved")

            assert colours(page, 1)[(90, 168, 151)] < 0.15

    def test_are_told_in_words_to_who_cannot_see_them(self, visit: Any) -> None:
        with showing(*story(60)) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            label = page.page.locator("canvas.lane").first.get_attribute("aria-label")

        assert re.search(r"GPU 0, last .*: busy \d+.%, starved or suspected \d+.%", label or "")

    def test_say_what_was_going_on_under_the_pointer(self, visit: Any) -> None:
        with showing(*story(60)) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            page.page.locator("canvas.lane").nth(1).hover()

            assert re.search(r"s ago: busy 97 %, within a step", page.text(".readout >> nth=1"))


def colours(page: Visit, lane: int) -> dict[tuple[int, int, int], float]:
    """Share of each colour in a lane's picture."""
    script = """canvas => {
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const found = {};
      for (let at = 0; at < data.length; at += 4) {
        const key = `${data[at]},${data[at + 1]},${data[at + 2]}`;
        found[key] = (found[key] ?? 0) + 4 / data.length;
      }
      return found;
    }"""
    found = page.page.locator("canvas.lane").nth(lane).evaluate(script)
    shares: dict[tuple[int, int, int], float] = {}
    for key, share in found.items():
        red, green, blue = map(int, key.split(","))
        shares[red, green, blue] = share
    return shares


class TestTheTables:
    def test_give_each_gpu_its_causes_and_close_the_sum(self, visit: Any) -> None:
        with showing(recent(monitor_state())) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            rows = page.text("table.causes >> nth=0").splitlines()

        assert rows[0] == "GPU 0 NVIDIA H200: starved"
        assert "starved: waiting for input ◀\t30.0 s\t30 %" in rows
        assert "suspected: untagged pauses\t6.0 s\t6.0 %" in rows
        assert "not decided yet\t2.0 s\t2.0 %" in rows
        assert rows[-1] == "sum = observed\t1 min 40 s\t100 %"

    def test_say_what_each_run_is_doing_now(self, visit: Any) -> None:
        ended = run("old", alive=False, phase=None)
        with showing(recent(monitor_state(runs=(ended, run())))) as server:
            page = visit(server)
            page.until("#runs", "resnet")
            rows = page.text("table.runs").splitlines()

        assert rows[1].split("\t") == [
            "resnet", "input_wait", "0", "3", "1234", "90.0 s", "keras/jax", "4242",
        ]  # fmt: skip
        assert rows[2].split("\t")[:2] == ["old", "ended"]

    def test_say_how_to_tag_where_no_run_is(self, visit: Any) -> None:
        with showing(recent(monitor_state(runs=()))) as server:
            page = visit(server)
            page.until("#runs", r"PhaseTagger\(\)")

            assert page.faults == []

    def test_never_take_a_name_for_markup(self, visit: Any) -> None:
        name = "<img src=x onerror=alert(1)>"
        with showing(recent(monitor_state(runs=(run(name),)))) as server:
            page = visit(server)
            page.until("#runs", "<img src=x")

            assert page.page.locator("img").count() == 0
            assert page.faults == []


class TestAsTimeGoesOn:
    def test_every_tick_renews_the_figures(self, visit: Any) -> None:
        told = story(61)
        with showing(*told[:60]) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            before = page.text("table.causes >> nth=1")
            server.publish(told[60])
            page.until("table.runs", r"1220")

            assert page.text("table.causes >> nth=1") != before
            assert "61.0 s" in page.text("table.causes >> nth=1")

    def test_the_page_that_was_open_first_follows_from_the_first_sample(self, visit: Any) -> None:
        with showing() as server:
            page = visit(server)
            page.until("#sentence", "Waiting for the first sample")
            for state in story(20):
                server.publish(state)
            page.until("#sentence", "starved")

            assert page.faults == []

    def test_a_daemon_that_does_not_sample_any_more_is_said_so(self, visit: Any) -> None:
        stale = [state._replace(taken_at_ns=state.taken_at_ns - 60 * S) for state in story(60)]
        with showing(*stale) as server:
            page = visit(server)
            page.until("#banner", r"has not sampled for 6\d\.\d.s")

            assert page.faults == []

    def test_a_daemon_that_is_gone_is_said_so_and_its_return_is_noticed(self, visit: Any) -> None:
        with showing(*story(30)) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            address = server.address
        page.until("#banner", "Connection to the daemon lost .* What you see is old")
        first = age(page)
        page.page.wait_for_timeout(700)
        assert age(page) > first

        with showing(recent(monitor_state(gpus=(healthy_gpu(),))), listen=address) as again:
            page.until("#sentence", r"GPU 1 is kept busy")

            assert page.page.locator("#banner").is_hidden()
            assert again.address == address


def age(page: Visit) -> float:
    return float(page.text("#age").removeprefix("last sample ").removesuffix(" s ago"))


class TestVerdictsInWords:
    @pytest.mark.parametrize(
        ("gpus", "sentence"),
        [
            ((), r"No GPU has been found yet\."),
            ((healthy_gpu(),), r"GPU 1 is kept busy: waiting for input cost 0\.0.s \(0.%\) of"),
            (
                (starved_gpu(present=False, error="GPU is lost"),),
                r"GPU 0 cannot be read now: what follows is the last known\.",
            ),
        ],
        ids=["none", "healthy", "lost"],
    )
    def test_are_plain(self, visit: Any, gpus: tuple[Any, ...], sentence: str) -> None:
        with showing(recent(monitor_state(gpus=gpus, simulated=False))) as server:
            page = visit(server)
            page.until("#sentence", sentence)

            assert page.page.locator("#simulated").is_hidden()
            assert page.faults == []

    def test_a_lost_gpu_beside_a_healthy_one_is_named_with_its_reason(self, visit: Any) -> None:
        lost = starved_gpu(present=False, error="GPU is lost: reboot")
        with showing(recent(monitor_state(gpus=(lost, healthy_gpu())))) as server:
            page = visit(server)
            page.until("#sentence", r"GPU 0 does not answer\. GPU 1 is kept busy")

            assert page.text(".gpu-line >> nth=0") == "not answering: GPU is lost: reboot"
            assert page.text("#why") == "GPU 0: GPU is lost: reboot."
            assert "gpumon doctor" in page.text("#next")


class TestScreenshots:
    @pytest.mark.parametrize("width", [1280, 390])
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_are_not_blank(self, visit: Any, width: int, scheme: str, tmp_path: Path) -> None:
        folder = Path(os.environ.get("GPUMON_SCREENSHOTS", tmp_path))
        with showing(*story(150), report=lambda _: {"advice": [ADVICE]}) as server:
            page = visit(server, width, scheme)
            page.until("#next", "Prefetch")
            shot = folder / f"page-{width}-{scheme}.png"
            page.page.screenshot(path=shot, full_page=True)

        assert shot.stat().st_size > 20_000


class TestManyPages:
    def test_beyond_the_limit_say_that_they_are_not_connected(self, visit: Any) -> None:
        asking = b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with showing(*story(10)) as server:
            streams = [dial(server, asking) for _ in range(16)]
            for stream in streams:
                assert stream.recv(12) == b"HTTP/1.1 200"
            page = visit(server)
            page.until("#banner", "Connection to the daemon lost")
            for stream in streams:
                stream.close()
            stop = threading.Event()
            feeder = threading.Thread(target=keep_publishing, args=(server, stop))
            feeder.start()
            try:
                page.until("#sentence", "starved")
            finally:
                stop.set()
                feeder.join(5)


def keep_publishing(server: HttpServer, stop: threading.Event) -> None:
    while not stop.wait(0.2):
        server.publish(recent(monitor_state()))
