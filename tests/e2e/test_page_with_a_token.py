"""The page for someone beyond loopback: a real browser, with the token as its password."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.outlets.http.callers import WebToken
from tests.builders.state import RunningClock
from tests.e2e.open_page import Visit, recent, story
from tests.patience import PATIENCE_S
from tests.serving import own_address, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

TOKEN = "correct-horse-battery-staple"


class TestBeyondLoopback:
    def test_the_page_lives_for_whoever_knows_the_token(self, browser: Browser) -> None:
        states = story(40)
        token = WebToken(TOKEN.encode())
        with (
            serving(
                *states,
                listen="0.0.0.0:0",
                token=token,
                clock=RunningClock(),
            ) as server,
            browser.new_context(
                http_credentials={"username": "anybody", "password": TOKEN}
            ) as context,
        ):
            page = context.new_page()
            visit = Visit(page, f"http://{own_address()}:{server.port}")
            with page.expect_response(lambda answer: "/api/v1/stream" in answer.url) as stream:
                answer = page.goto(f"{visit.origin}/")
            server.publish(recent(states[-1]))
            page.wait_for_selector("text=waits for input", timeout=1_000 * PATIENCE_S)

        assert answer is not None
        assert (answer.status, stream.value.status) == (200, 200)
        assert any("/api/v1/history" in url for url in visit.requested)
        # Chromium says of the 401 by which it is asked for the password.
        assert [fault for fault in visit.faults if "401" not in fault] == []
