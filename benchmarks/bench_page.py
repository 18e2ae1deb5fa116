"""What does the open page take of a core, of sixteen GPUs?

    python -m benchmarks.bench_page

Chromium without a GPU draws a minute of ticks, one a second, then ten a second. Its own metrics
say how long the page's thread worked.
"""

from __future__ import annotations

import sys
import time

from playwright.sync_api import Page, sync_playwright

from gpumon.outlets.http.server import HttpServer
from tests.e2e.conftest import ARGUMENTS, CHROMIUM
from tests.e2e.open_page import OnwardClock, showing, sixteen

SECONDS = {1: 60, 10: 20}
"""By ticks a second."""
GOAL = 0.05


def ratio_of_a_core(page: Page, server: HttpServer, per_second: int) -> float:
    """The share of the time in which the page worked, while ticks come."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def worked_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    began_s, before_s = time.monotonic(), worked_s()
    for state in sixteen()[-SECONDS[per_second] * per_second :]:
        server.publish(state)
        page.wait_for_timeout(1_000 / per_second)
    return (worked_s() - before_s) / (time.monotonic() - began_s)


def main() -> int:
    """Print the shares; 1 where the goal is missed."""
    states = sixteen()
    with showing(*states[:-300], clock=OnwardClock(states[-1])) as server, sync_playwright() as pw:
        browser = pw.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"http://{server.address}/")
        page.wait_for_selector("article.lane")
        ratios = {rate: ratio_of_a_core(page, server, rate) for rate in SECONDS}
        browser.close()
    for rate, ratio in ratios.items():
        goal = f" (goal: at most {GOAL:.0%})" if rate == 1 else ""
        print(f"{rate:>2} ticks a second: {ratio:.1%} of a core{goal}")
    return int(ratios[1] > GOAL)


if __name__ == "__main__":
    sys.exit(main())
