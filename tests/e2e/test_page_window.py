"""How far back the lanes of the live page go: as far as is kept, and no tick further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.builders_jitter import jittered_states
from tests.e2e.open_page import Visit, showing

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PERIOD_S = 0.1
KEPT_TICKS = 600


def told_at(page: Visit, share: float) -> str:
    """What the first lane says under a pointer so far along it."""
    box = page.page.locator("canvas.lane").first.bounding_box()
    assert box is not None
    page.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    return page.text(".readout >> nth=0")


class TestTheWindow:
    def test_stays_where_it_is_once_it_is_full_however_unevenly_ticks_come(
        self, visit: Any, tmp_path: Path
    ) -> None:
        states = list(jittered_states(tmp_path, 66.0, PERIOD_S))
        with showing(*states[:KEPT_TICKS]) as server:
            page = visit(server)
            page.until("#sentence", "GPU 0")
            seen = set()
            for state in states[KEPT_TICKS:]:
                server.publish(state)
                page.page.wait_for_timeout(20)
                seen.add(page.text(".from"))
                if state.samples_total % 10 == 0:
                    told = [told_at(page, share) for share in (0.005, 0.25, 0.45, 0.9)]
                    assert [
                        said for said in told if said.endswith(("not observed", "no longer kept"))
                    ] == []

            assert seen == {"1 min ago"}
            assert page.faults == []
