"""A pytest plugin: records which tests reach a marked line, and ends tests that take too long."""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

MARKS, RUNNING, TEST_S = "MUTATED_LINES_MARKS", "MUTATED_LINES_TEST", "MUTATED_LINES_TEST_S"
"""Variables: the folder of marks; the file with the running test's name; its time limit.

Not ``GPUMON_...``: a daemon that a test starts inherits none of those, but runs marked lines, too.
"""
_seen: set[tuple[int, str]] = set()


def reached(line: int) -> None:
    """A marked line runs: record its test, once in each process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (line, test) in _seen or MARKS not in os.environ:
        return
    _seen.add((line, test))
    path = os.path.join(os.environ[MARKS], str(line))  # noqa: PTH118  it must be cheap
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{test}\n".encode())
    os.close(file)


def pytest_runtest_logstart(nodeid: str) -> None:
    if RUNNING in os.environ:
        Path(os.environ[RUNNING]).write_text(nodeid, encoding="utf-8")
        faulthandler.dump_traceback_later(float(os.environ[TEST_S]), exit=True)


def pytest_runtest_logfinish() -> None:
    if RUNNING in os.environ:
        faulthandler.cancel_dump_traceback_later()
        Path(os.environ[RUNNING]).unlink(missing_ok=True)
