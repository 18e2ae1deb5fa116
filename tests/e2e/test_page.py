"""The live page in a real browser: where the time goes, and what to do."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import parts_in_unit_of
from gpumon.outlets.http.clients import WebToken
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.pipeline.state_report import report_of
from tests.builders.state import RunningClock, run
from tests.e2e.open_page import ADVICE, Show, Visit, now, recent, story
from tests.serving import own_address, serving
from tests.state_sequence import machine

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKEN = "correct-horse-battery-staple"
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def advised(report: Report) -> Report:
    """The same report with only this advice."""
    return replace(report, advice=(ADVICE,))


class TestThePage:
    @pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
    def test_has_loss_and_advice_on_the_first_screen_and_fits_its_width(
        self, show: Show, width: int, scheme: str, tmp_path: Path
    ) -> None:
        long = run("a-very-long-run-name-" * 6, framework="keras/tensorflow")
        page = show(*story(150), change=advised, width=width, scheme=scheme)
        page.until("#sentence", "[Ss]tarved")
        folder = Path(os.environ.get("GPUMON_SCREENSHOTS", tmp_path))
        shot = folder / f"page-{width}-{scheme}.png"
        page.page.screenshot(path=shot, full_page=True)

        assert page.text("#next") == f"{ADVICE.text} At most 1.50 times as fast."
        assert page.is_hidden("#more")  # there is nothing else
        assert re.search(r"\d+\.\d s ago", page.text("#age"))
        assert shot.stat().st_size > 20_000
        page.server.publish(now(runs=(long, run("b"))))
        page.until("#run-table", "a-very-long")
        assert page.page.evaluate(TOO_WIDE) <= 0

    def test_requests_nothing_from_other_servers(self, show: Show) -> None:
        page = show(*story(30))
        page.until("#sentence", "[Ss]tarved")
        page.page.wait_for_timeout(500)

        wanted = ["/", "/page.js", "/page.css", "/palette.css", "/api/v1/stream", "/api/v1/history"]
        assert {*wanted} <= {url.removeprefix(page.origin) for url in page.requested}
        assert [url for url in page.requested if not url.startswith(page.origin)] == []

    def test_has_the_lines_of_the_report_of_each_tick(self, show: Show) -> None:
        *reported, last = machine(115, [VerdictName.STARVED])
        page = show(*reported)
        page.until("#sentence", "[Ss]tarved")
        page.server.publish(last)
        page.page.locator(".open-details").first.click()
        page.until(".times tr >> nth=-1", rf"observed\s*{last.samples_total}\.0")

        report = report_of(last)
        assert page.text("#sentence").lower() == verdict_line(report).lower()
        assert page.text("#why").lower() == why_line(report).lower()
        assert page.text("#next") == next_line(report)

    def test_rounds_the_parts_of_a_figure_as_the_report_does(self, show: Show) -> None:
        page, drawn = show(*story(30)), Random(3)
        amounts = [
            (like, [drawn.randrange(like) for _ in range(drawn.randrange(1, 6))])
            for like in (3 * 10**9, 119 * 10**9, 400 * 10**9, 90 * 3600 * 10**9) * 50
        ]

        cells = page.page.evaluate(
            "async (all) => { const { partsInUnitOf } = await import('/figures.js');"
            " return all.map(([like, parts]) => partsInUnitOf(like, parts)); }",
            amounts,
        )

        shown = [[cell and cell.replace("\u00a0", " ") for cell in one] for one in cells]
        assert shown == [
            [cell and cell.replace(",", "") for cell in parts_in_unit_of(like, parts)]
            for like, parts in amounts
        ]

    def test_never_reads_a_name_as_markup(self, show: Show) -> None:
        page = show(now(runs=(run("<img src=x onerror=alert(1)>"),)))
        page.until("#run-table", "<img src=x")

        assert page.count("img") == 0


class TestBeyondLoopback:
    def test_the_page_works_with_the_token_as_its_password(self, browser: Browser) -> None:
        states = story(40)
        token = WebToken(TOKEN.encode())
        login: Any = {"username": "anybody", "password": TOKEN}
        with (
            serving(*states, listen="0.0.0.0:0", token=token, clock=RunningClock()) as server,
            browser.new_context(http_credentials=login) as context,
        ):
            page = context.new_page()
            visit = Visit(page, f"http://{own_address()}:{server.port}")
            with page.expect_response(lambda answer: "/api/v1/stream" in answer.url) as stream:
                answer = page.goto(f"{visit.origin}/")
            server.publish(recent(states[-1]))
            visit.until("#sentence", "GPU 0")

        assert answer is not None
        assert (answer.status, stream.value.status) == (200, 200)
        assert any("/api/v1/history" in url for url in visit.requested)
        # Chromium reports the 401 with which it is asked for the password.
        assert [fault for fault in visit.faults if "401" not in fault] == []
