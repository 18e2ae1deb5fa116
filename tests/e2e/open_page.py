"""The live page, opened in a browser on a server that publishes synthetic states."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from gpumon.core.clock import Clock
from gpumon.core.report.report import Advice, Report
from gpumon.core.state import GpuState, MonitorState
from gpumon.outlets.http.server import HttpServer
from gpumon.outlets.text.monitor_view import ViewBuilder
from gpumon.pipeline.state_report import report_of
from tests.builders.sixteen_gpus import LONG_S, SixteenGpus
from tests.builders.state import RunningClock, S, StoppedClock, monitor_state
from tests.serving import serving
from tests.state_sequence import starved_and_healthy
from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Page

ADVICE = Advice(
    cause="input_wait",
    lost_seconds=30.0,
    speedup_upper_bound=1.5,
    evidence="GPU 0 was idle for 30.0 s while the training waited for input.",
    text="Prefetch batches while the GPU works.",
)


class Visit:
    """An open page, and everything that went wrong in it.

    Attributes:
        server: The server of the page, if it was started for it.
        is_in_trouble: Whether the test expects faults.
    """

    server: HttpServer
    is_in_trouble = False

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.faults: list[str] = []
        self.requested: list[str] = []
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", lambda request: self.requested.append(request.url))

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.faults.append(f"{kind}: {text}")

    def text(self, selector: str) -> str:
        # A figure and its unit are held together by a space that does not break.
        return self.page.locator(selector).inner_text().replace("\u00a0", " ")

    def texts(self, selector: str) -> list[str]:
        """The texts of all matching elements."""
        found = self.page.locator(selector).all_inner_texts()
        return [text.replace("\u00a0", " ") for text in found]

    def until(self, selector: str, pattern: str) -> None:
        from playwright.sync_api import expect

        shown = expect(self.page.locator(selector))
        unbroken = pattern.replace(" ", "[ \u00a0]")
        shown.to_have_text(re.compile(unbroken), timeout=1_000 * PATIENCE_S)

    def renew(self, state: MonitorState) -> None:
        """Publish the state once more, so that the page does not call it old."""
        self.server.publish(state)
        self.page.wait_for_selector("#banner", state="hidden", timeout=1_000 * PATIENCE_S)

    def is_hidden(self, selector: str) -> bool:
        return self.page.locator(selector).is_hidden()

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()

    @property
    def tone(self) -> str | None:
        """The severity that the headline shows."""
        return self.page.locator("#verdict").get_attribute("data-tone")


Show = Callable[..., Visit]
"""Opens a page that shows these states."""


def showing(
    *states: MonitorState,
    change: Callable[[Report], Report] = lambda report: report,
    listen: str = "127.0.0.1:0",
    clock: Clock | None = None,
) -> AbstractContextManager[HttpServer]:
    """A server, by default with a running clock; ``change`` is applied to each report."""

    builder = ViewBuilder()
    return serving(
        *states,
        view=lambda state, cells: builder.view(state, change(report_of(state)), cells),
        listen=listen,
        clock=clock or RunningClock(),
    )


def recent(state: MonitorState) -> MonitorState:
    """The same state, as if its tick were now."""
    shift_ns = time.monotonic_ns() - state.taken_at_ns
    return state._replace(
        taken_at_ns=state.taken_at_ns + shift_ns,
        gpus=tuple(_later(gpu, shift_ns) for gpu in state.gpus),
        runs=tuple(
            replace(run, suspended_since_ns=run.suspended_since_ns + shift_ns)
            if run.suspended_since_ns is not None
            else run
            for run in state.runs
        ),
    )


def _later(gpu: GpuState, by_ns: int) -> GpuState:
    if gpu.last_sample_at_ns is not None:
        gpu = gpu._replace(last_sample_at_ns=gpu.last_sample_at_ns + by_ns)
    if gpu.now is not None:
        ended_ns = None if gpu.now.ended_ns is None else gpu.now.ended_ns + by_ns
        now = gpu.now._replace(since_ns=gpu.now.since_ns + by_ns, ended_ns=ended_ns)
        gpu = gpu._replace(now=now)
    if gpu.held is not None:
        gpu = gpu._replace(held=gpu.held._replace(since_ns=gpu.held.since_ns + by_ns))
    if gpu.errors is not None:
        gpu = gpu._replace(errors=gpu.errors.moved(by_ns))
    return gpu


def now(**changes: Any) -> MonitorState:
    """A state whose tick is now."""
    return recent(monitor_state(**changes))


def story(seconds: int) -> list[MonitorState]:
    """The states of the last seconds, ending now."""
    return [*starved_and_healthy(seconds, started_ns=time.monotonic_ns() - seconds * S)]


class OnwardClock(StoppedClock):
    """Runs on from the time of a state."""

    def __init__(self, state: MonitorState) -> None:
        super().__init__()
        self._ahead_ns = state.taken_at_ns - time.monotonic_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns


@cache
def sixteen() -> tuple[MonitorState, ...]:
    """The last ten minutes of a machine of sixteen GPUs, as of now."""
    states: deque[MonitorState] = deque(maxlen=620)
    SixteenGpus().play(LONG_S, states.append)
    return tuple(states)
