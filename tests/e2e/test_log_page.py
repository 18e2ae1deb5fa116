"""The page of `gpumon analyze --html`, opened as a file in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpumon.cli.main import main
from tests.builders_logs import smi_log
from tests.builders_time import rhythm
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

            assert re.match(r"Starvation .*: GPU 0\b", visit.text("h1"))
            assert visit.page.title() == "gpu.csv: GPU time"
            assert width > 900
            assert visit.requested == [page.as_uri()]
            assert visit.faults == []
            visit.page.close()
        assert papers == ["rgb(255, 255, 255)", "rgb(24, 32, 42)"]
        assert pictures[0] != pictures[1]
