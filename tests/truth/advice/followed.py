"""An advice that was followed: what was promised, and what it gained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpumon.core.diagnosis.speedup import promise_was_kept, speedup
from gpumon.core.report.report import Report

LEAST_PART = 0.5
"""Of what is promised: a bound that is further away says nothing."""


class Followed(NamedTuple):
    """One advice.

    Attributes:
        cause: That it was on.
        reason: That it went by; ``None``: by none.
        bound: How many times as fast the training would be at most.
        gain: How many times as fast it was.
        text: What it said.
    """

    cause: str
    reason: str | None
    bound: float
    gain: float
    text: str


def followed_of(cause: str, before: Report, after: Report) -> Followed:
    """The advice on a cause, and how many times as fast the training became.

    Raises:
        AssertionError: There is no such advice, or it promises nothing.
    """
    told = next((advice for advice in before.advice if advice.cause == cause), None)
    gain = speedup(before, after)
    assert told is not None, [advice.cause for advice in before.advice]
    assert told.speedup_upper_bound is not None
    assert gain is not None
    return Followed(cause, told.reason, told.speedup_upper_bound, gain, told.text)


def is_kept(row: Followed) -> bool:
    """Whether the gain lies between half of what was promised and that.

    >>> [is_kept(Followed("", None, 2.0, gain, "")) for gain in (1.4, 1.5, 2.0, 2.1)]
    [False, True, True, False]
    """
    is_enough = row.gain - 1 >= LEAST_PART * (row.bound - 1)
    return is_enough and promise_was_kept(row.bound, row.gain)


def table(rows: Mapping[str, Followed | str]) -> str:
    """All of them for a page; a text is why one could not be followed."""
    lines = [
        "| training | advice | at most | measured | within |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        if isinstance(row, str):
            lines.append(f"| {name} | - | - | - | not made: {row} |")
            continue
        on = row.cause if row.reason is None else f"{row.cause}, {row.reason}"
        within = "yes" if is_kept(row) else "**no**"
        lines.append(f"| {name} | {on} | {row.bound:.2f} | {row.gain:.2f} | {within} |")
    return "\n".join(lines)
