"""What does the live page cost the browser that shows it, at sixteen GPUs?

    python -m benchmarks.bench_page [SECONDS]

A real Chromium without a window shows the page of sixteen simulated GPUs, at one tick a second and
at ten. CPU is that of all its processes, in percent of a core, beside the same browser with an
empty page (the floor), in one run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psutil

from tests.builders.sixteen_gpus import LONG_S, served_live
from tests.e2e.conftest import ARGUMENTS, CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserType

GOAL: Final = 5.0
"""Percent of a core, at one tick a second."""
_SETTLES_S: Final = 5.0


def main() -> int:
    """Print the cost of each case; return 1 if the goal is missed."""
    from playwright.sync_api import sync_playwright

    length_s = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    print(f"{length_s:g} s each, CPU of Chromium in percent of a core")
    with sync_playwright() as playwright:
        floor = _cost(playwright.chromium, "about:blank", length_s)
        print(f"{'an empty page':34}{floor:6.2f}")
        costs = {}
        for ticks_per_s in (1, 10):
            with served_live(LONG_S, every_s=1 / ticks_per_s) as address:
                costs[ticks_per_s] = _cost(playwright.chromium, f"http://{address}/", length_s)
            name = f"16 GPUs, {ticks_per_s} ticks a second"
            print(f"{name:34}{costs[ticks_per_s]:6.2f}")
    is_met = costs[1] <= GOAL
    print(f"Goal, at most {GOAL:g} % at one tick a second: {'met' if is_met else 'missed'}.")
    return 0 if is_met else 1


def _cost(chromium: BrowserType, address: str, length_s: float) -> float:
    with _browser(chromium) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        time.sleep(_SETTLES_S)
        family = [one for one in psutil.Process().children(recursive=True) if "chrom" in one.name()]
        before_s = sum(_cpu_s(one) for one in family)
        page.wait_for_timeout(1_000 * length_s)
        return 100 * (sum(_cpu_s(one) for one in family) - before_s) / length_s


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _browser(chromium: BrowserType) -> Iterator[Browser]:
    browser = chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    try:
        yield browser
    finally:
        browser.close()


if __name__ == "__main__":
    sys.exit(main())
