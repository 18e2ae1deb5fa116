"""How far back the lanes of the live page go: as far as is kept, and no tick further."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.builders_jitter import jittered_states
from tests.builders_state import S
from tests.daemon import RunningDaemon
from tests.e2e.open_page import Visit, showing
from tests.story_of_states import starved_and_healthy

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PERIOD_S = 0.1
KEPT_TICKS = 600


FROM_LEFT_TO_RIGHT = (0.005, 0.2, 0.33, 0.5, 0.66, 0.9)


def holes(page: Visit) -> list[str]:
    """Where a pointer along the first lane finds nothing."""
    box = page.page.locator("canvas.lane").first.bounding_box()
    assert box is not None
    found = []
    for share in FROM_LEFT_TO_RIGHT:
        page.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        said = page.text(".readout >> nth=0")
        found += [said] if said.endswith(("not observed", "no longer kept")) else []
    return found


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
                    assert holes(page) == []

            assert seen == {"1 min ago"}
            assert page.faults == []

    def test_calls_what_is_older_than_is_kept_no_longer_kept(self, visit: Any) -> None:
        # Two ticks a period fill the room twice as fast as it was made for.
        states = [
            state._replace(period_ns=2 * state.period_ns) for state in starved_and_healthy(700)
        ]
        with showing(*states) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            gone = page.page.evaluate(
                """async () => {
                  const told = await (await fetch("/api/v1/history")).json();
                  const [[oldest]] = Object.values(told.gpus);
                  return [told.kept_ns, told.kept_from_ns, oldest.end_ns - oldest.observed_ns];
                }"""
            )
            assert gone == [1_200 * S, 88 * S - S // 10, 88 * S - S // 10]
            assert page.text(".from >> nth=0") == "20 min ago"
            assert holes(page)[0].endswith("ago: no longer kept")


class TestTenRealMinutes:
    @pytest.mark.soak
    def test_leave_no_hole_in_the_lane_of_a_source_that_is_never_on_time(
        self, visit: Any, tmp_path: Path
    ) -> None:
        spans, over = tmp_path / "spans", threading.Event()
        spans.touch()
        feeder = threading.Thread(target=keep_working, args=(spans, over))
        feeder.start()
        try:
            with RunningDaemon(tmp_path, "--source", f"follow:{spans}") as daemon:
                self.watch(visit(daemon))
        finally:
            over.set()
            feeder.join(5)

    def watch(self, page: Visit) -> None:
        full_s, seen = time.monotonic() + 610.0, []
        while (now_s := time.monotonic()) < full_s + 60.0:
            page.page.wait_for_timeout(1_000)
            if now_s > full_s:
                assert holes(page) == []
                seen.append(page.text(".from >> nth=0"))
        print(f"{len(seen)} looks at a full lane: {set(seen)}")
        assert set(seen) == {"10 min ago"}
        assert len(seen) > 30
        assert page.faults == []


def keep_working(spans: Path, over: threading.Event) -> None:
    """Spans of 0.3 s to 0.8 s with pauses of up to half a second between them."""
    chance = random.Random(7)
    with spans.open("a") as lines:
        while not over.wait(chance.uniform(0.0, 0.5)):
            start_ns = time.monotonic_ns()
            time.sleep(chance.uniform(0.3, 0.8))
            span = {"gpu": 0, "start_ns": start_ns, "end_ns": time.monotonic_ns()}
            lines.write(json.dumps(span) + "\n")
            lines.flush()
