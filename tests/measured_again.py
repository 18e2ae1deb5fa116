"""What is held to milliseconds is measured again where the machine was busy with others.

A pytest plugin, which ``conftest.py`` names. A test marked ``measured`` that fails while, by the
kernel's own account (pressure stall information), someone waited for a processor for more than a
twentieth of its time, is run once more, at most four times: so its bound can be as narrow as on a
machine that has nothing else to do, where it fails at once. Which were measured again stands at
the end.
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
    """As pytest does, but that only the last attempt is reported."""
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
        terminalreporter.section("measured again, for the machine was busy with others")
        terminalreporter.write_line("\n".join(reported))


def seconds_stalled() -> float:
    """For how long someone has waited for a processor since the boot; 0: this kernel does not say.

    The first line reads ``some avg10=1.53 avg60=2.10 avg300=0.90 total=9075419830``, the last in
    microseconds.
    """
    try:
        some = PRESSURE.read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6
