"""Report and kill processes that outlive the tests, and fail the run.

A pytest plugin, registered by ``conftest.py``. Each process inherits a mark in its environment, and
the name of the running test (pytest's variable), so it is found even after its parent has ended.
A process without the mark is found as long as it is a descendant.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import psutil
import pytest

from tests.waiting import until

MARK: Final = "STARTED_BY_THE_TESTS_OF"
PATIENCE_S: Final = 2.0
"""Time to end after a signal."""
END_WITH_US: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python keeps these as long as the process that needed them."""

_left = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_left] = []
    if not hasattr(config, "workerinput"):
        os.environ[MARK] = f"{os.getpid()}-{time.monotonic_ns()}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """After all fixtures; xdist's workers have ended by then."""
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
    """The controller of xdist reports for its workers, and fails."""
    node.config.stash[_left] += getattr(node, "workeroutput", {}).get("left", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = terminalreporter.config.stash[_left]
    if left:
        terminalreporter.section("processes that outlived the tests", red=True, bold=True)
        for line in left:
            terminalreporter.write_line(line)


def _living(config: pytest.Config) -> Iterator[psutil.Process]:
    """Processes started here that live; a worker of xdist finds only its descendants."""
    descendants = psutil.Process().children(recursive=True)
    anywhere = [] if hasattr(config, "workerinput") else list(psutil.process_iter())
    for process in {*descendants, *anywhere} - {psutil.Process()}:
        with contextlib.suppress(psutil.Error):  # it has just ended, or is another user's
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
