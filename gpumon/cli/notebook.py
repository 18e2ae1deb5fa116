"""Reports in a notebook: ``gpumon.report()``, and after each cell that trained."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentTypeError
from html import escape
from typing import Any, Final

from gpumon.cli.command import time_argument
from gpumon.cli.report import daemons_report
from gpumon.core.report.lanes import ReportWithLanes
from gpumon.errors import NoDaemonError, UsageError
from gpumon.outlets.text.report_text import render_report
from gpumon.outlets.text.style import TextStyle

_HEIGHT_PX: Final = 620
_SETTLES_IN_S: Final = 6.0
"""A daemon settles the end of a cell when the samples of its GPUs have passed it."""
_ASK_EVERY_S: Final = 0.5


class ShownReport:
    """A report that a notebook shows as a page, and everything else as text.

    Attributes:
        found: The report and its lanes; ``None``: there is none.
        why_none: Why there is none, as a sentence; otherwise empty.
    """

    def __init__(self, found: ReportWithLanes | None, why_none: str = "") -> None:
        self.found, self.why_none = found, why_none

    def __repr__(self) -> str:
        if self.found is None:
            return self.why_none
        return render_report(self.found.report, TextStyle()).rstrip("\n")

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which runs no script; text where matplotlib is missing.

        Its style does not reach the notebook, nor the notebook's the page.
        """
        page = self._page()
        if page is None:
            return f"<pre>{escape(repr(self))}</pre>"
        return (
            f'<iframe sandbox="" title="gpumon report" srcdoc="{escape(page)}" '
            f'style="width: 100%; height: {_HEIGHT_PX}px; border: 0"></iframe>'
        )

    def _page(self) -> str | None:
        if self.found is None:
            return None
        try:
            from gpumon.outlets.plot.html import html_page
        except ImportError:
            return None
        return html_page(*self.found).decode()


def shown_report(since: str | None = None, run: str | None = None) -> ShownReport:
    """The report of the running daemon; see ``gpumon.report``."""
    if since is not None and run is not None:
        raise UsageError("since= cannot be combined with run=")
    try:
        since_s = None if since is None else time_argument(f"{since}")
        return ShownReport(daemons_report(since_s, run, with_lanes=True))
    except ArgumentTypeError as error:
        raise UsageError(f"since={since!r}: {error}") from None
    except NoDaemonError as error:
        return ShownReport(None, f"gpumon: {error}")


class CellReports:
    """Shows the report of this process's run after each cell that trained."""

    def __init__(self) -> None:
        self._steps = _steps_so_far()

    def after_cell(self, _: object = None) -> None:
        """Called by IPython after each cell."""
        before, self._steps = self._steps, _steps_so_far()
        if self._steps > before:
            from IPython.display import display

            display(_settled_report(str(os.getpid())))


def _settled_report(run: str) -> ShownReport:
    """The report once no second of its GPUs is pending, or after some seconds."""
    give_up_s = time.monotonic() + _SETTLES_IN_S
    while True:
        try:
            shown = shown_report(run=run)
        except UsageError as error:  # it does not know the run yet
            shown = ShownReport(None, f"gpumon: {error}")
            is_settled = False
        else:
            gpus = () if shown.found is None else shown.found.report.gpus
            is_settled = not any(gpu.totals.pending_ns for gpu in gpus)
        if is_settled or time.monotonic() > give_up_s:
            return shown
        time.sleep(_ASK_EVERY_S)


def _steps_so_far() -> int:
    """The steps that the tags of this process have counted; 0 without tags.

    The process must not open its own ring: closing that would release the lock of the run.
    """
    hooks = sys.modules.get("trainer_hooks.ring.process_ring")
    ring = None if hooks is None else hooks.ring_so_far()
    return 0 if ring is None or ring.writer is None else int(ring.writer.steps)


def load_extension(shell: Any) -> None:  # noqa: ANN401
    """``%load_ext gpumon``: show a report after each cell that trained."""
    shell.events.register("post_run_cell", CellReports().after_cell)
