"""Runs beside the tests: says which of them reach a line, and ends one that takes for ever.

A plugin of pytest (``-p tests.tools.mutated_lines.beside_tests``), and what a marked line calls.
"""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

MARKS, ENDLESS, LONGEST = "MUTATED_LINES_MARKS", "MUTATED_LINES_TEST", "MUTATED_LINES_LONGEST_S"
"""Variables: the folder of marks; the file with the running test's name; its seconds.

Not ``GPUMON_...``: a daemon that a test starts inherits none of those, and runs marked lines, too.
"""
_seen: set[tuple[int, str]] = set()


def reached(line: int) -> None:
    """The marked line runs: note for which test, once in each process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if (line, test) in _seen or MARKS not in os.environ:
        return
    _seen.add((line, test))
    path = os.path.join(os.environ[MARKS], str(line))  # noqa: PTH118  it must cost next to nothing
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{test}\n".encode())
    os.close(file)


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test begins: by its end it has cancelled this."""
    if ENDLESS in os.environ:
        Path(os.environ[ENDLESS]).write_text(nodeid, encoding="utf-8")
        faulthandler.dump_traceback_later(float(os.environ[LONGEST]), exit=True)


def pytest_runtest_logfinish() -> None:
    if ENDLESS in os.environ:
        faulthandler.cancel_dump_traceback_later()
        Path(os.environ[ENDLESS]).unlink(missing_ok=True)
