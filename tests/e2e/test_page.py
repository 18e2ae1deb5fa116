"""The live page in a real browser: where the time goes, and what to do."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from gpumon.core.wording import parts_in_unit_of
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.pipeline.reports import report_of
from tests.builders.state import run
from tests.e2e.open_page import ADVICE, Show, now, story
from tests.story_of_states import machine

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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
        page.until("#sentence", "^Starved")
        folder = Path(os.environ.get("GPUMON_SCREENSHOTS", tmp_path))
        shot = folder / f"page-{width}-{scheme}.png"
        page.page.screenshot(path=shot, full_page=True)

        assert page.text("#next") == f"{ADVICE.text} At most 1.50 times as fast."
        assert page.is_hidden("#more")  # there is nothing else
        assert re.search(r"\d+\.\d s ago", page.text("#age"))
        assert shot.stat().st_size > 20_000
        page.server.publish(now(runs=(long, run("b"))))
        page.until("#runs", "a-very-long")
        assert page.page.evaluate(TOO_WIDE) <= 0

    def test_requests_nothing_from_other_servers(self, show: Show) -> None:
        page = show(*story(30))
        page.until("#sentence", "^Starved")
        page.page.wait_for_timeout(500)

        assert {"/", "/page.js", "/page.css", "/api/v1/stream", "/api/v1/history"} <= {
            url.removeprefix(page.origin) for url in page.requested
        }
        assert [url for url in page.requested if not url.startswith(page.origin)] == []

    def test_has_the_lines_of_the_report_of_each_tick(self, show: Show) -> None:
        *reported, last = machine(115, [VerdictName.STARVED])
        page = show(*reported)
        page.until("#sentence", "^Starved")
        page.server.publish(last)
        page.until("table.causes tfoot", rf"{last.samples_total}\.0")

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
        page.until("#runs", "<img src=x")

        assert page.count("img") == 0
