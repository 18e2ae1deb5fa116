"""Retry tests of milliseconds that failed while the machine was busy.

A pytest plugin, registered by ``conftest.py``. A test marked ``measured`` is retried up to four
times if the kernel reports that tasks waited for a core for more than a twentieth of its time
(pressure stall information). So its bound can be as narrow as on an idle machine, where it fails at
once. The retried tests are listed at the end.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

AT_MOST: Final = 5
BUSY_ABOVE: Final = 0.05
PRESSURE: Final = Path("/proc/pressure/cpu")
_ATTEMPTS: Final = "measured again"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """As pytest does, but report only the last attempt."""
    if item.get_closest_marker("measured") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    attempts, is_over = 0, False
    while not is_over:
        attempts += 1
        began_s, stalled_s = time.monotonic(), seconds_stalled()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        busy_ratio = (seconds_stalled() - stalled_s) / (time.monotonic() - began_s)
        has_failed = any(report.failed for report in reports)
        is_over = not has_failed or busy_ratio <= BUSY_ABOVE or attempts == AT_MOST
    for report in reports:
        if attempts > 1 and report.when == "call":
            report.user_properties.append((_ATTEMPTS, attempts))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reported = [
        f"{report.nodeid}: {attempts} times"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        for printed, attempts in report.user_properties
        if printed == _ATTEMPTS
    ]
    if reported:
        terminalreporter.section("measured again because the machine was busy")
        terminalreporter.write_line("\n".join(reported))


def seconds_stalled() -> float:
    """Time since boot in which a task waited for a core; 0 if the kernel does not count it.

    The first line reads ``some avg10=1.53 avg60=2.10 avg300=0.90 total=9075419830``, the last in
    microseconds.
    """
    try:
        some = PRESSURE.read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6
