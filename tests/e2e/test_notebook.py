"""The report of a real daemon, as a notebook shows it in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpumon
from tests.daemon import RunningDaemon

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_is_a_page_whose_style_stays_inside(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningDaemon(tmp_path, "--source", "simulated:input-bound", "--period", "0.2") as daemon:
        monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(daemon.runtime_dir))
        shown = gpumon.report()
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.set_content(f"<body><p>A cell</p>{shown._repr_html_()}</body>")

    title = page.frame_locator("iframe").locator("h1").text_content()
    style = page.evaluate("getComputedStyle(document.body).fontFamily")
    page.close()

    assert title
    assert title.casefold() in f"{' '.join(str(shown).split())}".casefold()
    assert "Helvetica" not in style
    assert problems == []
