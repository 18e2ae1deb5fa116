"""The live page on a machine of many GPUs: the worst first, the healthy folded, nothing dances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import pytest

from gpumon.core.device.troubles import ErrorTimes
from gpumon.core.state import MonitorState
from gpumon.core.verdict import VerdictName
from tests.builders.state import device, healthy_gpu
from tests.e2e.open_page import Show, Visit, now, recent
from tests.state_sequence import machine

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEALTHY, STARVED, STALLED, IDLE = (
    VerdictName.HEALTHY,
    VerdictName.STARVED,
    VerdictName.STALLED,
    VerdictName.NOT_IN_USE,
)
THIRTEEN = [HEALTHY] * 8 + [STARVED, HEALTHY, STALLED, HEALTHY, IDLE]

Gpus = list[tuple[str, str, int]]
"""A name, a verdict, and what was lost."""
ORDERED = """async ticks => {
  const { Order } = await import("/order.js");
  const order = new Order();
  const gpu = (uuid, verdict, lost) => ({
    uuid, verdict, present: true, parent_uuid: null,
    idle_ns: { input_wait: lost }, starved_ns: lost,
  });
  return ticks.map(({ at, gpus }) =>
    order.take(gpus.map((one) => gpu(...one)), at * 1e9).map(({ uuid }) => uuid).join(""));
}"""


def recent_states(roles: Sequence[VerdictName], seconds: int = 60) -> list[MonitorState]:
    return [recent(state) for state in machine(seconds, roles)]


def order(page: Visit) -> list[int]:
    return [int(name.split()[1]) for name in page.texts(".gpu-name")]


def lanes(page: Visit) -> int:
    """How many can be seen."""
    return page.count("canvas.lane:visible")


class TestAMachineOfThirteen:
    @pytest.mark.parametrize("width", [1280, 390])
    def test_shows_the_starved_gpu_on_the_first_screen_and_folds_each_healthy_one_to_a_line(
        self, show: Show, width: int
    ) -> None:
        states = recent_states(THIRTEEN)
        page = show(*states, width=width)
        page.until("#sentence", "^Starved .*GPU 8 spends")
        page.until("#advice li >> nth=0", "^GPUs 8 and 10: during checkpoints")
        first = page.page.locator("canvas.lane").first.bounding_box()

        assert order(page) == [8, 10, 0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 12]
        assert first is not None
        assert first["y"] + first["height"] < 844
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = [one.bounding_box() for one in page.page.locator(".gpu:not([open])").all()]
        assert lanes(page) == 2
        assert len(boxes) == 11
        assert all(box is not None and box["height"] < 32 for box in boxes)
        assert page.count("table.causes") == 2
        assert page.text("#folded").startswith("11 more")

    def test_opens_one_by_the_keyboard_and_leaves_it_open(self, show: Show) -> None:
        states = recent_states(THIRTEEN, 70)
        page = show(*states[:60])
        page.until("#sentence", "^Starved .*GPU 8 spends")
        page.page.locator("summary").nth(4).focus()
        page.page.keyboard.press("Enter")
        page.until("#causes caption >> nth=2", "GPU 2 ")
        for state in states[60:]:
            page.server.publish(state)
            page.until("table.causes >> nth=2 >> tfoot", rf"{state.samples_total}\.0.s")

        canvas = page.page.locator("canvas.lane").nth(4)
        assert lanes(page) == 3
        assert canvas.get_attribute("aria-label")
        assert canvas.evaluate("canvas => canvas.width") > 500
        page.page.keyboard.press("Space")
        page.until("#folded", "^11 more")
        assert lanes(page) == 2

    def test_brings_up_a_gpu_that_goes_bad_and_keeps_the_keyboard_where_it_was(
        self, show: Show
    ) -> None:
        page = show(*recent_states([HEALTHY] * 6))
        page.until("#sentence", "GPUs 0.5 lost little time")
        assert lanes(page) == 0
        page.page.locator("summary").nth(4).focus()
        page.server.publish(recent_states([HEALTHY] * 4 + [STARVED, HEALTHY], 61)[-1])
        page.until("#sentence", "^Starved .*GPU 4 spends")

        assert order(page) == [4, 0, 1, 2, 3, 5]
        assert lanes(page) == 1
        focused = page.page.evaluate("document.activeElement.innerText")
        assert focused.startswith("GPU 4 ")

    def test_shows_gpus_in_trouble_first_and_folds_none_of_them(self, show: Show) -> None:
        eight = [healthy_gpu(device=device(index, f"GPU-{index}-aaaa")) for index in range(8)]
        for index, xid in ((5, 79), (6, 31)):
            errors = ErrorTimes(((xid, 2**62),))
            eight[index] = eight[index]._replace(xid_errors=((xid, 1),), errors=errors)
        state = now(gpus=tuple(eight), runs=(), collectors=())
        page = show(state)
        page.until("#sentence", "GPU 5 .*XID 79 .* GPU 6 .*XID 31 ")

        assert order(page)[:3] == [5, 6, 0]
        cards = page.page.locator(".gpu").all()
        assert [card.evaluate("card => card.open") for card in cards] == [True] * 2 + [False] * 6


class TestTheOrder:
    @pytest.fixture
    def ordered(self, show: Show) -> Callable[..., Any]:
        """What each tick's order is: of a second and its GPUs."""
        page = show(*recent_states([HEALTHY], 2))
        page.until("#sentence", "GPU 0")
        return lambda *ticks: page.page.evaluate(
            ORDERED, [{"at": at, "gpus": gpus} for at, gpus in ticks]
        )

    def test_is_kept_while_two_lose_about_as_much(self, ordered: Any) -> None:
        def tick(at: int, lost: int) -> tuple[int, Gpus]:
            return at, [("a", "starved", 100), ("b", "starved", lost)]

        places = ordered(*starmap(tick, [(1, 99), (2, 101), (3, 124), (4, 126), (5, 99)]))

        assert places == ["ab", "ab", "ab", "ba", "ba"]

    def test_is_kept_while_a_verdict_goes_to_and_fro(self, ordered: Any) -> None:
        def tick(at: int, verdict: str) -> tuple[int, Gpus]:
            return at, [("a", "healthy", 1), ("b", verdict, 2)]

        names = ["partial", "healthy", "partial", *["healthy"] * 12]
        places = ordered(*starmap(tick, enumerate(names)))

        assert places == ["ba"] * 13 + ["ab"] * 2
