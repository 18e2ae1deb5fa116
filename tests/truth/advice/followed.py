"""Advice that was followed: the promised gain, and the measured one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.codecs.report_codec import decode_report
from gpumon.core.diagnosis.report_differences import speedup
from gpumon.core.report.report import Report
from gpumon.outlets.text.comparison import promise_was_kept
from tests.truth.advice.runs import CASES, SIDES
from tests.truth.host.cells import trained
from tests.truth.host.surroundings import little_memory, must_read_from_a_device
from tests.truth.host.work import Stage
from tests.truth.tables import table

MIN_PART: Final = 0.5
"""Of the promised gain: a bound that is further away is useless."""
_SECONDS: Final = {"before": 18.0, "after": 8.0}
"""A verdict needs 10 s in use, the speed of the steps less."""
_PATIENCE_S: Final = 120.0


class Followed(NamedTuple):
    """One advice.

    Attributes:
        cause: The cause that it is about.
        reason: The reason that it is based on, if any.
        bound: How many times as fast the run would be at most.
        gain: How many times as fast it was.
        text: Its sentence.
    """

    cause: str
    reason: str | None
    bound: float
    gain: float
    text: str


def advice_followed(name: str, stage: Stage) -> Followed:
    """Train before the change and after it, each watched by a daemon.

    Raises:
        NotHereError: This machine cannot.
    """
    before, after = (_report_of(name, side, stage) for side in SIDES)
    return followed_of(CASES[name].cause, before, after)


def _report_of(name: str, side: str, stage: Stage) -> Report:
    case, seconds = CASES[name], _SECONDS[side]
    command = [
        sys.executable, "-m", "tests.truth.advice.runs", "--case", name, "--side", side,
        "--seconds", str(seconds + case.at_first_s), *stage.arguments,
    ]  # fmt: skip
    if case.needs == "disk":
        must_read_from_a_device(stage.file, 0)
    with ExitStack() as around:
        if case.needs == "cgroup" and side == "before":
            command += ["--cgroup", str(around.enter_context(little_memory()))]
        folder = around.enter_context(tempfile.TemporaryDirectory(prefix="gpumon-truth-"))
        _, report = trained(command, Path(folder), timeout_s=seconds + _PATIENCE_S)
    return decode_report(report)


def followed_of(cause: str, before: Report, after: Report) -> Followed:
    """The advice on a cause, and how many times as fast the run became.

    Raises:
        AssertionError: There is no such advice, or it promises nothing.
    """
    found = next((advice for advice in before.advice if advice.cause == cause), None)
    gain = speedup(before, after)
    assert found is not None, [advice.cause for advice in before.advice]
    assert found.speedup_upper_bound is not None
    assert gain is not None
    return Followed(cause, found.reason, found.speedup_upper_bound, gain, found.text)


def is_kept(row: Followed) -> bool:
    """Whether the gain is between half of the promised one and all of it."""
    is_enough = row.gain - 1 >= MIN_PART * (row.bound - 1)
    return is_enough and promise_was_kept(row.bound, row.gain)


def bounds_table(rows: Mapping[str, Followed | str]) -> str:
    """A row for each advice, or why it could not be followed."""
    lines: list[list[str]] = []
    for name, row in rows.items():
        if isinstance(row, str):
            lines.append([name, "-", "-", "-", f"not made: {row}"])
            continue
        advice = row.cause if row.reason is None else f"{row.cause}, {row.reason}"
        within = "yes" if is_kept(row) else "**no**"
        lines.append([name, advice, f"{row.bound:.2f}", f"{row.gain:.2f}", within])
    return table(["run", "advice", "at most", "measured", "within"], lines)
