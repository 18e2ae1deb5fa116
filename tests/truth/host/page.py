"""The tables of ``docs/host-truth.md``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from tests.truth.host.cells import Cell, Reported, together
from tests.truth.host.conditions import CONDITIONS, CORES
from tests.truth.tables import DOCS, put, table, today

PAGE: Final = DOCS / "host-truth.md"
MIN_RIGHT, MAX_WRONG = 0.90, 0.02
"""Shares of the lost seconds, over all cells."""

Results = Mapping[Cell, Reported | str]
"""The result of each cell, or why there is none."""


def conditions_table() -> str:
    """The right reasons, and why."""
    return table(
        ["condition", "right reason", "why"],
        ([name, " or ".join(one.right) or "none", one.why] for name, one in CONDITIONS.items()),
    )


def results_table(results: Results) -> str:
    """A row for each cell."""
    heads = ["condition", "loader", "neighbour", "GPU idle", "reported", "right", "wrong"]
    return table([*heads, "unknown", "by reason"], map(_row, results, results.values()))


def totals(results: Results) -> str:
    """The sum of all cells with a loss, in one sentence."""
    result = _in_all(results)
    if not result.lost_s:
        return "Nothing was lost."
    right, wrong = result.right_s / result.lost_s, result.wrong_s / result.lost_s
    verdict = "met" if is_met(results) else "**missed**"
    return (
        f"Of {result.lost_s:.0f} s lost, {right:.1%} have a right reason "
        f"(goal: {MIN_RIGHT:.0%} at least), {wrong:.1%} a wrong one "
        f"(goal: {MAX_WRONG:.0%} at most), "
        f"{result.unknown_s / result.lost_s:.1%} none: {verdict}."
    )


def is_met(results: Results) -> bool:
    """Whether enough of the seconds have a right reason, and few enough a wrong one."""
    result = _in_all(results)
    is_right = result.right_s >= MIN_RIGHT * result.lost_s > 0
    return is_right and result.wrong_s <= MAX_WRONG * result.lost_s


def write(results: Results, *, runs: int, seconds: float) -> None:
    """Put all tables into the page."""
    header = (
        f"`python -m tests.truth.host`, {today()}: {runs} runs of {seconds:g} s a cell on {CORES} "
        f"cores, load average {os.getloadavg()[1]:.1f}. Seconds are the sums of all runs."
    )
    put("conditions", conditions_table(), PAGE)
    put("reasons", f"{header}\n\n{results_table(results)}\n\n{totals(results)}", PAGE)


def _in_all(results: Results) -> Reported:
    """The sum without the cells that should lose nothing."""
    return together(
        result
        for cell, result in results.items()
        if isinstance(result, Reported) and CONDITIONS[cell.condition].right
    )


def _row(cell: Cell, result: Reported | str) -> list[str]:
    name = [cell.condition, cell.loader, "busy" if cell.has_neighbour else "none"]
    if isinstance(result, str):
        return [*name, f"not made: {result}", *[""] * 5]
    shares = [
        f"{seconds / result.lost_s:.0%}" if result.lost_s else ""
        for seconds in (result.right_s, result.wrong_s, result.unknown_s)
    ]
    longest_first = sorted(result.by_reason.items(), key=lambda item: -item[1])
    reasons = ", ".join(f"{name} {seconds:.1f}" for name, seconds in longest_first if seconds > 0)
    return [*name, f"{result.idle_s:.1f}", f"{result.lost_s:.1f}", *shares, reasons]
