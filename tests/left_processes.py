"""No process outlives the tests: at the end each one that does is named, and the run fails.

A pytest plugin, which ``conftest.py`` names. Whoever is started from here inherits a mark in its
environment, and with it the name of the test that was running (pytest's own variable): so it is
found wherever it has gone, also once its parent has ended. What was given an environment without
the mark is found as long as it is a descendant.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import psutil
import pytest

from tests.patience import until

MARK: Final = "STARTED_BY_THE_TESTS_OF"
PATIENCE_S: Final = 2.0
"""What was asked to end may take so long."""
END_WITH_US: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python keeps these for as long as the process that needed them lives."""

_left = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left] = []
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = f"{os.getpid()}-{time.monotonic_ns()}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Look once all fixtures have given back what they had; xdist's workers have ended by then."""
    left = session.config.stash[_left]
    if not until(lambda: not list(_living(session.config)), PATIENCE_S, every_s=0.05):
        for process in _living(session.config):
            left.append(_named(process))
            process.kill()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = left
    elif left and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Of the workers of xdist the controller says, and fails."""
    node.config.stash[_left] += getattr(node, "workeroutput", {}).get("left", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = terminalreporter.config.stash[_left]
    if left:
        terminalreporter.section("processes that outlived the tests", red=True, bold=True)
        for line in left:
            terminalreporter.write_line(line)


def _living(config: pytest.Config) -> Iterator[psutil.Process]:
    """What was started here and has not ended; a worker of xdist knows of its descendants alone."""
    descendants = psutil.Process().children(recursive=True)
    anywhere = [] if hasattr(config, "workerinput") else list(psutil.process_iter())
    for process in {*descendants, *anywhere} - {psutil.Process()}:
        with contextlib.suppress(psutil.Error):  # it has just ended, or it is someone else's
            is_ours = process in descendants or process.environ().get(MARK) == os.environ[MARK]
            if is_ours and not _is_over(process):
                yield process


def _is_over(process: psutil.Process) -> bool:
    is_dead = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return is_dead or any(name in " ".join(process.cmdline()) for name in END_WITH_US)


def _named(process: psutil.Process) -> str:
    try:
        words = " ".join(process.cmdline())
        test = process.environ().get("PYTEST_CURRENT_TEST", "between two tests")
    except psutil.Error:
        words, test = "(it has just ended)", "an unknown test"
    return f"pid {process.pid}, started in {test}: {words[:300]}"
