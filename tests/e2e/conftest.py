"""A real Chromium, for whichever test opens the page, and a heap without other tests' objects."""

from __future__ import annotations

import gc
import importlib.util
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.outlets.http.server import HttpServer
from tests.e2e.open_page import Visit
from tests.needs import missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        missing("chromium is not installed (apt-get install chromium)")
    elif importlib.util.find_spec("playwright") is None:
        missing("playwright is not installed (pip install playwright)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


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


@pytest.fixture
def small_heap() -> Iterator[None]:
    """What thousands of collected tests hold is no burden to whoever makes many objects now."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
