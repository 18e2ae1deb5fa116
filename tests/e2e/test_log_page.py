"""The pages of `gpumon analyze --html` and `gpumon report --html`, opened in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpumon.cli.main import main
from tests.builders.logs import smi_log
from tests.builders.time import rhythm
from tests.e2e.open_page import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAPER = "element => getComputedStyle(element).backgroundColor"
DRAWN = "image => [image.naturalWidth, image.currentSrc]"


def opened(browser: Browser, path: Path, scheme: str) -> Visit:
    page = browser.new_page(viewport={"width": 1100, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    visited = Visit(page, path.as_uri())
    page.goto(visited.origin)
    return visited


class TestThePageOfALog:
    def test_stands_alone_by_day_and_by_night(self, browser: Browser, tmp_path: Path) -> None:
        log, page = tmp_path / "gpu.csv", tmp_path / "gpu.html"
        hostile = smi_log([round(100 * ratio) for ratio in rhythm(3, 2, 30)])
        log.write_text(hostile.replace("NVIDIA A40", "<script>document.title='x'</script>"))
        assert main(["analyze", str(log), "--html", str(page)]) == 0

        papers, pictures = [], []
        for scheme in ("light", "dark"):
            visit = opened(browser, page, scheme)
            papers.append(visit.page.locator("body").evaluate(PAPER))
            width, shown = visit.page.locator("picture img").evaluate(DRAWN)
            pictures.append(shown)

            assert re.match(r"Partly busy .*: GPU 0\b", visit.text("h1"))
            assert visit.page.title() == "gpu.csv: GPU time"
            assert width > 900
            assert visit.requested == [page.as_uri()]
            assert visit.faults == []
            visit.page.close()
        assert papers == ["rgb(255, 255, 255)", "rgb(24, 32, 42)"]
        assert pictures[0] != pictures[1]


RECORDED = Path(__file__).parents[1] / "recordings" / "nvidia-h100-80gb-hbm3-keras.gpumon"
TOO_WIDE = "page => page.scrollWidth > page.clientWidth"


class TestThePageOfARecording:
    def test_is_printed_on_light_paper_and_within_its_edges(
        self, browser: Browser, tmp_path: Path
    ) -> None:
        path = tmp_path / "run.html"
        assert main(["replay", str(RECORDED), "--html", str(path)]) == 0
        visit = opened(browser, path, "dark")
        visit.page.emulate_media(media="print", color_scheme="dark")
        visit.page.set_viewport_size({"width": 1000, "height": 700})  # A4, landscape

        _, shown = visit.page.locator("picture img").evaluate(DRAWN)

        assert visit.page.locator("body").evaluate(PAPER) == "rgb(255, 255, 255)"
        assert shown == visit.page.locator("picture img").get_attribute("src")
        assert not visit.page.locator("html").evaluate(TOO_WIDE)
        assert not any(visit.page.locator(".wide").evaluate_all(f"all => all.map({TOO_WIDE})"))
