"""A real Chromium for the tests of the page."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from gpumon.core.state import MonitorState
from tests.e2e.open_page import Show, Visit, showing
from tests.needs import missing
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


@pytest.fixture(scope="session")
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
def servers() -> Iterator[ExitStack]:
    """Closed after the pages that use them."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def visit(browser: Browser, servers: ExitStack) -> Iterator[Callable[..., Visit]]:
    """Opens the page at an address, and fails on faults unless the test expects trouble."""
    visits: list[Visit] = []

    def open_page(
        address: str, width: int = 1280, scheme: Any = "light", height: int = 844
    ) -> Visit:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        visits.append(Visit(page, f"http://{address}"))
        page.goto(f"{visits[-1].origin}/")
        return visits[-1]

    yield open_page
    for one in visits:
        one.page.close()
    assert [one.faults for one in visits if one.faults and not one.is_in_trouble] == []


@pytest.fixture
def show(visit: Callable[..., Visit], servers: ExitStack) -> Show:
    """Opens the page on a new server that publishes these states."""

    def opened(
        *states: MonitorState,
        width: int = 1280,
        scheme: str = "light",
        height: int = 844,
        **printed: Any,
    ) -> Visit:
        server = servers.enter_context(showing(*states, **printed))
        page = visit(server.address, width, scheme, height)
        page.server = server
        if states:  # the script has taken over
            page.page.wait_for_selector("#grid", timeout=1_000 * PATIENCE_S)
        return page

    return opened
