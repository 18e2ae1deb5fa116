"""The three slow examples: what their reports must name, and the change."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.codecs.report_codec import decode_report
from gpumon.core.report.report import Report
from tests.truth.advice.followed import Followed, followed_of
from tests.truth.host.cells import python_of, trained


class SlowExample(NamedTuple):
    """One of them.

    Attributes:
        reason: The reason of its waits.
        steps: Enough for a verdict before the change, and for a speed after it.
        change: The argument that makes the change.
        names: What the advice must name.
        framework: The one that it needs; empty: none.
    """

    reason: str
    steps: tuple[int, int]
    change: tuple[str, ...]
    names: tuple[str, ...]
    framework: str = ""


SLOW_EXAMPLES: Final[Mapping[str, SlowExample]] = MappingProxyType(
    {
        "slow_by_a_disk": SlowExample(
            "disk_bound", (320, 250), ("--keep-in-memory",), ("in memory",)
        ),
        "slow_by_the_gil": SlowExample(
            "gil_bound", (400, 350), ("--processes",),
            ("processes", "Texts", "slow_by_the_gil.py:"),
        ),
        "slow_by_few_workers": SlowExample(
            "cpu_bound", (350, 300), ("--workers", "2"),
            ("num_workers=2", "DataLoader(Photos, num_workers=1)", "slow_by_few_workers.py:"),
            framework="torch",
        ),
    }
)  # fmt: skip


def example_followed(name: str) -> Followed:
    """Train without the change, and with the argument that the report advises.

    Raises:
        NotHereError: Its framework is not here.
        AssertionError: The report names another reason, or not what must change.
    """
    slow = SLOW_EXAMPLES[name]
    before = _report_of(name, slow, "--steps", str(slow.steps[0]))
    after = _report_of(name, slow, "--steps", str(slow.steps[1]), *slow.change)
    cause = next((one.cause for one in before.advice if one.reason == slow.reason), None)
    assert cause is not None, [one.reason for one in before.advice]
    row = followed_of(cause, before, after)
    assert [text for text in slow.names if text not in row.text] == [], row
    return row


def _report_of(name: str, slow: SlowExample, *arguments: str) -> Report:
    command = [str(python_of(slow.framework)), f"examples/{name}.py", *arguments]
    with tempfile.TemporaryDirectory(prefix="gpumon-slow-") as folder:
        return decode_report(trained(command, Path(folder), timeout_s=180)[1])
