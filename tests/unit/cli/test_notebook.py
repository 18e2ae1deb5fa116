"""Tests of reports in a notebook."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpumon
from gpumon.cli import notebook
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import IdleCause
from gpumon.core.report.lanes import Lanes, ReportWithLanes
from gpumon.errors import NoDaemonError, UsageError
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle
from tests.builders.report import gpu, report, run
from tests.builders.time import s

SLOW = report(gpu(30, {IdleCause.INPUT_WAIT: 30}), runs=(run(wall_s=60),))
LANES = Lanes((Lane(s(7), s(8), s(1), (s(1),), (s(1),), (s(1),)),))
Requests = list[tuple[float | None, str | None]]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """The requests to a daemon that reports SLOW."""
    received: Requests = []

    def answer(since_s: float | None, run: str | None, *, with_lanes: bool) -> ReportWithLanes:
        assert with_lanes
        received.append((since_s, run))
        return ReportWithLanes(SLOW, LANES)

    monkeypatch.setattr(notebook, "daemons_report", answer)
    return received


def refusing(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """A daemon that refuses once with each of these."""
    left = [*errors]

    def answer(*_: object, **__: object) -> ReportWithLanes:
        if left:
            raise left.pop(0)
        return ReportWithLanes(SLOW, LANES)

    monkeypatch.setattr(notebook, "daemons_report", answer)


@pytest.mark.usefixtures("requests")
class TestTheReport:
    def test_is_text_where_it_is_printed(self) -> None:
        assert f"{gpumon.report()}\n" == render_report(SLOW, TextStyle())

    def test_is_a_page_in_a_frame_that_runs_no_script(self) -> None:
        shown = gpumon.report()._repr_html_()

        assert shown.startswith('<iframe sandbox="" ')
        assert shown.count("<") == 2
        assert "&lt;h1&gt;Starved" in shown

    def test_is_text_without_matplotlib(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "gpumon.outlets.plot.html", None)

        shown = gpumon.report()._repr_html_()

        assert shown.startswith("<pre>Verdict: Starved")

    @pytest.mark.parametrize(
        ("wanted", "asked"),
        [({"since": "15m"}, (900.0, None)), ({"run": "train"}, (None, "train")), ({}, (None,) * 2)],
    )
    def test_may_cover_a_recent_time_or_one_run(
        self, requests: Requests, wanted: dict[str, str], asked: object
    ) -> None:
        gpumon.report(**wanted)

        assert requests == [asked]

    @pytest.mark.parametrize(
        ("wanted", "refusal"),
        [
            ({"since": "yesterday"}, "'yesterday' is not a time such as 90s"),
            ({"since": "1h", "run": "train"}, "cannot be combined"),
        ],
    )
    def test_is_refused_for_a_mistake(self, wanted: dict[str, str], refusal: str) -> None:
        with pytest.raises(UsageError, match=refusal):
            gpumon.report(**wanted)


class TestWithoutADaemon:
    def test_it_is_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refusing(monkeypatch, NoDaemonError("no <b>daemon</b> is running"))

        shown = gpumon.report()

        assert str(shown) == "gpumon: no <b>daemon</b> is running"
        assert shown._repr_html_() == ("<pre>gpumon: no &lt;b&gt;daemon&lt;/b&gt; is running</pre>")


class FakeShell:
    """As IPython's, as far as an extension needs it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.displayed: list[Any] = []
        self.events = SimpleNamespace(register=self._register)
        self._writer = SimpleNamespace(steps=0)
        display = ModuleType("IPython.display")
        display.display = self.displayed.append  # type: ignore[attr-defined]
        hooks = ModuleType("trainer_hooks.ring.process_ring")
        ring = SimpleNamespace(writer=self._writer)
        hooks.ring_so_far = lambda: ring  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setitem(sys.modules, hooks.__name__, hooks)

    def _register(self, event: str, does: Any) -> None:
        assert event == "post_run_cell"
        self._does = does

    def run_cell(self, *, steps: int) -> None:
        self._writer.steps += steps
        self._does(None)


class TestTheExtension:
    def test_shows_a_report_after_each_cell_that_trained(
        self, monkeypatch: pytest.MonkeyPatch, requests: Requests
    ) -> None:
        shell = FakeShell(monkeypatch)
        gpumon.load_ipython_extension(shell)

        shell.run_cell(steps=0)
        shell.run_cell(steps=30)
        shell.run_cell(steps=0)

        assert [str(shown)[:8] for shown in shell.displayed] == ["Verdict:"]
        assert requests == [(None, str(os.getpid()))]

    def test_asks_again_until_the_daemon_knows_the_run(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notebook, "_ASK_EVERY_S", 0.0)
        refusing(monkeypatch, UsageError("there is no such run"), UsageError("nor now"))
        shell = FakeShell(monkeypatch)
        gpumon.load_ipython_extension(shell)

        shell.run_cell(steps=30)

        assert [str(shown)[:8] for shown in shell.displayed] == ["Verdict:"]

    def test_shows_why_there_is_no_report(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refusing(monkeypatch, NoDaemonError("no daemon is running"))
        shell = FakeShell(monkeypatch)
        gpumon.load_ipython_extension(shell)

        shell.run_cell(steps=30)

        assert [*map(str, shell.displayed)] == ["gpumon: no daemon is running"]
