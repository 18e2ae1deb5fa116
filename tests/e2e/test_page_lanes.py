"""The lanes of the live page: colours say where a GPU's time went, as far back as is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.evidence import PlaceCount, StackFinding
from gpumon.core.stacks.stack import StackFrame
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.view.palette import LIGHT
from tests.builders.state import S, jittered_states
from tests.e2e.open_page import Show, Visit, story
from tests.state_sequence import starved_and_healthy

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour.removeprefix("#")))


BUSY, WAITING = rgb(LIGHT.busy), rgb(LIGHT.input_wait)
LIBRARY = "torch/utils/data/dataloader.py"
PERIOD_S = 0.1
KEPT_TICKS = 600
FROM_LEFT_TO_RIGHT = (0.005, 0.2, 0.33, 0.5, 0.66, 0.9)

COLOURS = """canvas => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const found = {};
  for (let at = 0; at < data.length; at += 4) {
    const key = `${data[at]},${data[at + 1]},${data[at + 2]}`;
    found[key] = (found[key] ?? 0) + 4 / data.length;
  }
  return found;
}"""
PLACED = """async points => (await import("/cells.js")).placed(points)
  .map(({ start, end }) => [start, end])"""
WIDTH = "plot => plot.ariaValueMax - plot.ariaValueMin"
KEPT = """async () => {
  const history = await (await fetch("/api/v1/history")).json();
  const [[oldest]] = Object.values(history.gpus);
  return [history.kept_ns, history.kept_from_ns, oldest.end_ns - oldest.observed_ns];
}"""


def colours(page: Visit, lane: int) -> dict[tuple[int, ...], float]:
    """Share of each colour in a lane's picture."""
    found = page.page.locator(".plot canvas").nth(lane).evaluate(COLOURS)
    return {tuple(map(int, key.split(","))): share for key, share in found.items()}


def holes(page: Visit) -> list[str]:
    """Where a pointer along the first lane finds nothing."""
    box = page.page.locator(".plot canvas").first.bounding_box()
    assert box is not None
    found = []
    for share in FROM_LEFT_TO_RIGHT:
        page.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        printed = page.text(".readout >> nth=0")
        found += [printed] if printed.endswith(("not watched", "older than is kept")) else []
    return found


def width_s(page: Visit) -> int:
    """Seconds that the lanes show."""
    seconds: int = page.page.locator(".plot").first.evaluate(WIDTH)
    return seconds


class TestTheLanes:
    def test_are_one_for_each_gpu_in_the_colours_of_its_time(self, show: Show) -> None:
        page = show(*story(60))
        page.until("#sentence", "[Ss]tarved")

        assert page.count(".plot canvas") == 3
        starved, _, healthy = (colours(page, number) for number in range(3))
        assert starved[WAITING] > 0.25
        assert starved[BUSY] > 0.25
        assert healthy.get(WAITING, 0) == 0
        assert healthy[BUSY] > 0.75

    def test_show_in_words_what_was_true_at_the_cursor_in_all_of_them(self, show: Show) -> None:
        page = show(*story(60))
        page.until("#sentence", "[Ss]tarved")
        page.page.locator(".plot").nth(2).hover()

        plot = page.page.locator(".plot").nth(2)
        time, _, words = page.text(".readout >> nth=2").partition(": ")
        assert words == "busy 97 %, within the step 3.0 %"
        assert re.fullmatch(r"\d\d:\d\d:\d\d UTC", time)
        assert all(text.startswith(time) for text in page.texts(".readout"))
        assert plot.get_attribute("aria-label") == "GPU 1"
        assert (plot.get_attribute("aria-valuetext") or "").endswith(words.replace(" %", "\u00a0%"))

    def test_leave_their_colours_in_the_legend_no_longer_than_they_are_there(
        self, show: Show
    ) -> None:
        *_, last = states = story(60)
        page = show(*states)
        page.until("#sentence", "[Ss]tarved")
        wait = "waiting for input"
        assert wait in page.texts("#legend li:visible")
        page.server.publish(last._replace(taken_at_ns=last.taken_at_ns + S, gpus=last.gpus[1:2]))
        page.until("#sentence", "lost little time")

        assert wait not in page.texts("#legend li:visible")

    def test_have_no_hole_where_a_tick_came_before_its_last_sample(self, show: Show) -> None:
        early = [(10, 1.0), (11, 0.75), (12, 1.25), (14, 1.0)]
        page = show(*story(6))
        page.until("#sentence", "[Ss]tarved")

        points = [{"end_ns": end, "observed_ns": observed} for end, observed in early]
        spans = page.page.evaluate(PLACED, points)
        assert spans == [[9, 10], [10, 10.75], [10.75, 12], [13, 14]]


class TestTheWindow:
    def test_stays_where_it_is_once_it_is_full_however_unevenly_ticks_come(
        self, show: Show, tmp_path: Path
    ) -> None:
        states = list(jittered_states(tmp_path, 66.0, PERIOD_S))
        page = show(*states[:KEPT_TICKS])
        page.until("#sentence", "GPU 0")
        seen = set()
        for state in states[KEPT_TICKS:]:
            page.server.publish(state)
            page.page.wait_for_timeout(20)
            seen.add(width_s(page))
            if state.samples_total % 10 == 0:
                assert holes(page) == []

        assert seen == {60}

    def test_names_what_is_older_than_is_kept(self, show: Show) -> None:
        # Two ticks a period fill the room twice as fast as it was made for.
        states = [
            state._replace(period_ns=2 * state.period_ns) for state in starved_and_healthy(700)
        ]
        page = show(*states)
        page.until("#sentence", "[Ss]tarved")

        assert page.page.evaluate(KEPT) == [1_200 * S, 88 * S - S // 10, 88 * S - S // 10]
        assert width_s(page) == 20 * 60
        assert holes(page)[0].endswith("older than is kept")


class TestWhatStackSamplesShow:
    def test_is_below_the_lane_of_its_gpu_alone(self, show: Show) -> None:
        page = show(*seen(story(60)))
        page.until("#sentence", "[Ss]tarved")

        assert [text for text in page.texts(".seen") if text] == [
            "Stack samples show a wait for input in 9 of 10 sampled pauses, of 31 pauses in all. "
            "In 36 of 40 stack samples taken while it was idle, its process was in "
            f"DataLoader.__next__ ({LIBRARY}), called from train.py:41. "
            "Files: /home/ann/job/train.py."  # the browser is of the daemon's user
        ]
        assert [page.is_hidden(f".seen >> nth={number}") for number in range(3)] == [0, 1, 1]

    def test_is_text_whatever_a_file_is_called(self, show: Show) -> None:
        page = show(*seen(story(60), file="<img src=x onerror=alert(1)>.py"))
        page.until("#sentence", "[Ss]tarved")

        assert "called from <img src=x onerror=alert(1)>.py:41." in page.text(".seen >> nth=0")
        assert page.count(".seen img") == 0


def seen(states: list[MonitorState], file: str = "train.py") -> list[MonitorState]:
    """The same states, with stack samples of the first GPU."""
    frame = StackFrame("__next__", f"/env/lib/python3.11/site-packages/{LIBRARY}")
    place = PlaceCount(
        IdleCause.INPUT_WAIT, "DataLoader.__next__", frame,
        StackFrame("main", f"/home/ann/job/{file}", 41), samples=36,
    )  # fmt: skip
    found = StackFinding(idle_samples=40, places=(place,))

    def with_samples(gpu: GpuState) -> GpuState:
        pauses = replace(gpu.totals.pauses, count=31)
        totals = gpu.totals._replace(sampled_pauses=10, seen_input_pauses=9, pauses=pauses)
        return gpu._replace(stacks=found, totals=totals)

    return [state._replace(gpus=(with_samples(state.gpus[0]), *state.gpus[1:])) for state in states]
