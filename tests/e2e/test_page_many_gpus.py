"""The live page on a machine of many GPUs: all on one screen, the worst open, nothing jumps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from gpumon.core.device.troubles import ErrorTimes
from gpumon.core.state import MonitorState
from gpumon.core.verdict import VerdictName
from tests.builders.report import gpm_fill
from tests.builders.sixteen_gpus import HELD, LOST, STARVED_GPU
from tests.builders.state import device, healthy_gpu
from tests.e2e.open_page import OnwardClock, Show, Visit, now, recent, sixteen
from tests.state_sequence import machine

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEALTHY, LATE, STALLED, IDLE = (
    VerdictName.HEALTHY,
    VerdictName.STARVED,
    VerdictName.STALLED,
    VerdictName.NOT_IN_USE,
)
Open = Callable[..., Visit]
THIRTEEN = [HEALTHY] * 8 + [LATE, HEALTHY, STALLED, HEALTHY, IDLE]
BOXES = """all => all.map((one) => {
  const { left, top, right, bottom } = one.getBoundingClientRect();
  return [left, top, right, bottom];
})"""
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def recent_states(roles: Sequence[VerdictName], seconds: int = 60) -> list[MonitorState]:
    return [recent(state) for state in machine(seconds, roles)]


def tiles(page: Visit) -> list[str]:
    """The names of all tiles, as a screen reader reads them."""
    names = re.findall(r'- button "(GPU .*?)"', page.page.locator("#tiles").aria_snapshot())
    return [name.replace("\u00a0", " ") for name in names]


def lanes(page: Visit) -> list[int]:
    """The GPUs whose lanes are open."""
    return [int(name.split()[1]) for name in page.texts(".lane h3 .gpu")]


def bottoms(page: Visit, selector: str) -> list[float]:
    boxes = page.page.locator(selector).evaluate_all(BOXES)
    return [bottom for *_, bottom in boxes]


class TestSixteenGpus:
    @pytest.fixture
    def shown(self, show: Show) -> Open:
        """Opens the page on them, and waits for it."""
        states = sixteen()
        return lambda **size: show(*states, clock=OnwardClock(states[-1]), **size)

    def test_fit_one_screen_with_what_whose_since_when_and_what_to_do(self, shown: Open) -> None:
        page = shown(height=800)
        page.renew(sixteen()[-1])

        height = page.page.locator("#sentence").evaluate(
            "one => one.getBoundingClientRect().height"
        )
        assert height < 30  # on one line
        assert re.fullmatch(
            f"GPU {LOST} lost since .{{9}} · GPU {STARVED_GPU} starved since .{{9}} · "
            "GPUs 2 and 9 held idle since .{9} · 8 healthy",
            page.text("#sentence"),
        )
        assert len(tiles(page)) == 16
        assert lanes(page) == [LOST, STARVED_GPU, *HELD]
        assert max(bottoms(page, ".tile, .lane")) <= 800
        assert page.page.evaluate(TOO_WIDE) <= 0
        lost, starved, *held = page.texts(".lane")
        assert page.is_hidden("#not-open")
        for text in ("lost", "since ", "XID 79", "dave", "Reboot, or power-cycle the machine"):
            assert text in lost
        for text in ("starved", "since ", "waiting for input: the disk", "alice", "python",
                     "pid 4242", "resnet50", "The disk is the limit: "):  # fmt: skip
            assert text in starved
        for text in ("held idle", "since ", "62.0 GiB", "bob", "python", "Ask bob whether"):
            assert all(text in one for one in held)

    def test_have_a_tile_each_with_number_state_busy_share_and_user(self, shown: Open) -> None:
        page = shown()

        names = tiles(page)
        assert [name.split()[1] for name in names] == [str(index) for index in range(16)]
        assert names[0] == "GPU 0 99 % busy healthy carol"
        assert names[STARVED_GPU] == f"GPU {STARVED_GPU} 45 % busy starved alice"
        assert names[HELD[1]] == f"GPU {HELD[1]} 0 % busy held idle bob"
        assert len({*page.texts(".tile .shape")}) == 5

    def test_show_all_advice_without_a_click(self, shown: Open) -> None:
        page = shown()

        view = page.page.evaluate("fetch('/api/v1/view').then((answer) => answer.json())")
        seen = page.text("body")
        assert len(view["advice"]) == 3
        for advice in [one["text"] for one in view["advice"]]:
            assert advice in seen
        for gpu in view["gpus"]:
            assert gpu["first_advice"][:40] in seen

    def test_are_linked_to_their_runs_and_back(self, shown: Open) -> None:
        page = shown()
        page.until("#run-table", "llm-pretrain")
        page.page.get_by_role("button", name="GPU 4", exact=True).click()

        assert 4 in lanes(page)
        assert page.page.evaluate("document.activeElement.ariaLabel") == "GPU 4"
        page.page.locator(".lane .runs-of button", has_text="llm-pretrain").click()
        assert page.page.evaluate("document.activeElement.innerText") == "llm-pretrain"

    def test_are_read_by_the_keyboard_alone(self, shown: Open) -> None:
        page = shown()
        keys = page.page.keyboard
        keys.press("Tab")
        assert page.page.evaluate("document.activeElement.innerText").startswith("GPU 0")
        keys.press("ArrowDown")
        keys.press("ArrowRight")
        keys.press("ArrowRight")
        keys.press("Enter")

        assert 10 in lanes(page)
        assert page.page.evaluate("document.activeElement.innerText").startswith("GPU 10")
        page.page.locator(".plot").nth(1).focus()
        keys.press("ArrowLeft")
        words = page.page.locator(".plot").nth(1).get_attribute("aria-valuetext") or ""
        assert re.match(r"\d\d:\d\d:\d\d.UTC: .*(busy|waiting for input) ", words)
        keys.press("Shift+PageDown")
        keys.press("Shift+PageDown")
        keys.press("Enter")
        page.until("#own-span", r"\d\d:\d\d:\d\d.\d\d:\d\d:\d\d")
        assert "#from=" in page.page.url
        keys.press("Escape")
        keys.press("Escape")
        assert page.page.url.endswith("#live")


class TestAMachineOfThirteen:
    @pytest.mark.parametrize("width", [1280, 390])
    def test_shows_the_worst_lane_and_a_tile_of_each(self, show: Show, width: int) -> None:
        page = show(*recent_states(THIRTEEN), width=width)
        page.until("#sentence", "GPU 8 starved")

        assert [name.split()[1] for name in tiles(page)] == [str(index) for index in range(13)]
        assert lanes(page) == [8, 10][: len(lanes(page))]
        assert page.page.evaluate(TOO_WIDE) <= 0
        if width == 1280:
            assert lanes(page) == [8, 10]

    def test_opens_one_and_leaves_it_open_until_it_is_closed(self, show: Show) -> None:
        states = recent_states(THIRTEEN, 70)
        page = show(*states[:60])
        page.until("#sentence", "GPU 8 starved")
        page.page.locator(".tile").nth(2).press("Enter")
        assert lanes(page) == [8, 10, 2]
        page.page.locator(".open-details").nth(2).click()
        for state in states[60:]:
            page.server.publish(state)
            page.until(".lane >> nth=2 >> .times", rf"observed\s*{state.samples_total}\.0.s")

        assert lanes(page) == [8, 10, 2]
        assert page.page.locator(".lane canvas").nth(2).evaluate("canvas => canvas.width") > 400
        page.page.locator(".tile").nth(2).press("Space")
        assert lanes(page) == [8, 10]

    def test_opens_a_gpu_that_goes_bad_and_keeps_the_keyboard_where_it_was(
        self, show: Show
    ) -> None:
        page = show(*recent_states([HEALTHY] * 6))
        page.until("#sentence", "GPUs 0.5 lost little time")
        assert lanes(page) == []
        page.page.locator(".tile").nth(4).focus()
        page.server.publish(recent_states([HEALTHY] * 4 + [LATE, HEALTHY], 61)[-1])
        page.until("#sentence", "GPU 4 ")

        assert lanes(page) == [4]
        focused = page.page.evaluate("document.activeElement.innerText")
        assert focused.startswith("GPU 4")

    def test_opens_gpus_in_trouble_first(self, show: Show) -> None:
        eight = [healthy_gpu(device=device(index, f"GPU-{index}-aaaa")) for index in range(8)]
        for index, xid in ((5, 79), (6, 31)):
            errors = ErrorTimes(((xid, 2**62),))
            eight[index] = eight[index]._replace(xid_errors=((xid, 1),), errors=errors)
        state = now(gpus=tuple(eight), runs=(), collectors=())
        page = show(state)
        page.until(".lane >> nth=0", "XID 79")

        assert lanes(page) == [5, 6]
        assert "XID 31" in page.text(".lane >> nth=1")

    def test_colours_no_healthy_gpu_for_a_hint(self, show: Show) -> None:
        five = [healthy_gpu(device=device(index, f"GPU-{index}")) for index in range(5)]
        five[2] = five[2]._replace(fill=gpm_fill(0.24))
        page = show(now(gpus=tuple(five), runs=(), collectors=()))
        page.until("#sentence", "GPU 2")

        places = page.page.locator(".tile-place")
        assert places.evaluate_all("all => all.map((one) => one.dataset.tone)") == ["good"] * 5
        page.page.locator(".tile").nth(2).click()
        assert "multiprocessors" in page.text(".lane")


class TestAHundredGpus:
    def test_fit_the_first_screen_with_the_worst_lane(self, show: Show) -> None:
        roles = [HEALTHY] * 112
        roles[3] = LATE
        states = recent_states(roles, 30)
        page = show(*states, height=800)
        page.renew(states[-1])

        assert tiles(page)[3] == "GPU 3 97 % busy starved"
        assert lanes(page) == [3]
        assert max(bottoms(page, ".tile, .lane")) <= 800
        assert page.page.evaluate(TOO_WIDE) <= 0
        assert page.page.locator(".tile .shape").nth(3).is_visible()
