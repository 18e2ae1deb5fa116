"""The lanes of the live page: a stripe for each GPU, whose colours say where its time went."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.builders_state import S
from tests.e2e.open_page import Visit, showing, story

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def colours(page: Visit, lane: int) -> dict[tuple[int, int, int], float]:
    """Share of each colour in a lane's picture."""
    script = """canvas => {
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const found = {};
      for (let at = 0; at < data.length; at += 4) {
        const key = `${data[at]},${data[at + 1]},${data[at + 2]}`;
        found[key] = (found[key] ?? 0) + 4 / data.length;
      }
      return found;
    }"""
    found = page.page.locator("canvas.lane").nth(lane).evaluate(script)
    shares: dict[tuple[int, int, int], float] = {}
    for key, share in found.items():
        red, green, blue = map(int, key.split(","))
        shares[red, green, blue] = share
    return shares


class TestTheLanes:
    def test_are_one_for_each_gpu_in_the_colours_of_its_time(self, visit: Any) -> None:
        with showing(*story(60)) as server:
            page = visit(server)
            page.until("#sentence", "starved")

            assert page.page.locator("canvas.lane").count() == 3
            starved, _, healthy = (colours(page, number) for number in range(3))

        red, green = (217, 56, 30), (90, 168, 151)
        assert starved[red] > 0.25
        assert starved[green] > 0.25
        assert healthy.get(red, 0) == 0
        assert healthy[green] > 0.75

    def test_leave_time_that_was_not_observed_empty(self, visit: Any) -> None:
        with showing(*story(6)) as server:
            page = visit(server)
            page.until("#sentence", "starved")

            assert colours(page, 2)[(90, 168, 151)] < 0.15

    def test_are_told_in_words_to_who_cannot_see_them(self, visit: Any) -> None:
        with showing(*story(60)) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            label = page.page.locator("canvas.lane").first.get_attribute("aria-label")

        assert re.search(r"GPU 0, last .*: busy \d+.%, starved or suspected \d+.%", label or "")

    def test_say_what_was_going_on_under_the_pointer(self, visit: Any) -> None:
        with showing(*story(60)) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            page.page.locator("canvas.lane").nth(2).hover()

            assert re.search(r"s ago: busy 97 %, within a step", page.text(".readout >> nth=2"))

    def test_leave_their_colours_in_the_legend_no_longer_than_they_are_there(
        self, visit: Any
    ) -> None:
        states = story(60)
        _, healthy, _ = states[-1].gpus
        with showing(*states) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            assert "waiting for input" in page.texts("#legend li")
            later = states[-1]._replace(taken_at_ns=states[-1].taken_at_ns + S, gpus=(healthy,))
            server.publish(later)
            page.until("#sentence", "kept busy")

            assert "waiting for input" not in page.texts("#legend li")

    def test_have_no_hole_where_a_tick_came_before_its_last_sample(self, visit: Any) -> None:
        early = [(10, 1.0), (11, 0.75), (12, 1.25), (14, 1.0)]
        points = [{"end_ns": end, "observed_ns": observed} for end, observed in early]
        with showing(*story(6)) as server:
            page = visit(server)
            page.until("#sentence", "starved")
            spans = page.page.evaluate(
                """async points => (await import("/lanes.js")).placed(points)
                  .map(({ start, end }) => [start, end])""",
                points,
            )

        assert spans == [[9, 10], [10, 10.75], [10.75, 12], [13, 14]]
