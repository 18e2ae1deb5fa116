"""How much GPU time is lost, to what, and what to change first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumon.cli.notebook import ShownReport

__version__ = "0.1.0"


def report(*, since: str | None = None, run: str | None = None) -> ShownReport:
    """The report of the daemon that runs on this machine, for a notebook.

    A notebook shows it as a page, and ``print`` as text. Without a daemon it is a sentence.

    Args:
        since: Only the last ``"90s"``, ``"15m"``, ``"1h"`` or ``"2d"``.
        run: Only one training run, by its name or pid in the report.

    Raises:
        UsageError: There is no such run, or the time is invalid; says what is possible.
    """
    from gpumon.cli.notebook import shown_report

    return shown_report(since, run)


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401
    """``%load_ext gpumon``: after each cell that trained, show the report of its run."""
    from gpumon.cli.notebook import load_extension

    load_extension(shell)
