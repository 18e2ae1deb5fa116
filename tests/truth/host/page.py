"""The tables of ``docs/host-truth.md``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.rivals.tools import PINNED
from tests.truth.host.cells import Cell, Reported, together
from tests.truth.host.conditions import CONDITIONS, CORES
from tests.truth.host.rivals import RIVALS
from tests.truth.measured_page import put

PAGE: Final = Path(__file__).parents[3] / "docs" / "host-truth.md"
COMMAND: Final = "python -m tests.truth.host"
LEAST_RIGHT, MOST_WRONG = 0.90, 0.02
"""Of the seconds lost, over all cells."""
_HEAD: Final = """\
| condition | loader | neighbour | GPU idle | reported | right | wrong | unknown | by reason |
|---|---|---|---|---|---|---|---|---|"""

Results = Mapping[Cell, Reported | str]
"""The result of each cell, or why there is none."""
RivalVerdicts = Mapping[Cell, Mapping[str, str]]
"""The verdict of each rival on a cell."""


def conditions_table() -> str:
    """The right reasons, and why."""
    rows = [
        f"| {name} | {' or '.join(one.right) or 'none'} | {one.why} |"
        for name, one in CONDITIONS.items()
    ]
    return "\n".join(["| condition | right reason | why |", "|---|---|---|", *rows])


def results_table(results: Results) -> str:
    """A row a cell."""
    return "\n".join([_HEAD, *(_row(cell, result) for cell, result in results.items())])


def rivals_table(said: RivalVerdicts) -> str:
    """Their verdicts, beside the right reasons."""
    rows = [
        f"| {cell.condition} | {cell.loader} | {' or '.join(CONDITIONS[cell.condition].right)} "
        f"| {' | '.join(words[rival].replace('|', '') for rival in RIVALS)} |"
        for cell, words in said.items()
    ]
    tools = " | ".join(PINNED[rival].replace("==", " ") for rival in RIVALS)
    head = f"| condition | loader | right reason | {tools} |\n|---|---|---|{'---|' * len(RIVALS)}"
    return "\n".join([head, *rows])


def totals(results: Results) -> str:
    """The sum of all cells with a loss, in one sentence."""
    result = _in_all(results)
    if not result.lost_s:
        return "Nothing was lost."
    right, wrong = result.right_s / result.lost_s, result.wrong_s / result.lost_s
    verdict = "met" if is_met(results) else "**missed**"
    return (
        f"Of {result.lost_s:.0f} s lost, {right:.1%} have a right reason "
        f"(aim: {LEAST_RIGHT:.0%} at least), {wrong:.1%} a wrong one "
        f"(aim: {MOST_WRONG:.0%} at most), "
        f"{result.unknown_s / result.lost_s:.1%} none: {verdict}."
    )


def is_met(results: Results) -> bool:
    """Whether enough of the seconds have a right reason, and few enough a wrong one."""
    result = _in_all(results)
    is_right = result.right_s >= LEAST_RIGHT * result.lost_s > 0
    return is_right and result.wrong_s <= MOST_WRONG * result.lost_s


def write(results: Results, of_rivals: RivalVerdicts, *, runs: int, seconds: float) -> None:
    """Put all tables into the page."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    said = (
        f"`{COMMAND}`, {today}: {runs} runs of {seconds:g} s a cell on {CORES} cores, load average "
        f"{os.getloadavg()[1]:.1f}. Seconds are the sums of all runs."
    )
    put("conditions", conditions_table(), PAGE)
    put("reasons", f"{said}\n\n{results_table(results)}\n\n{totals(results)}", PAGE)
    put("rivals", rivals_table(of_rivals), PAGE)


def _in_all(results: Results) -> Reported:
    """The sum without the cells that should lose nothing."""
    return together(
        result
        for cell, result in results.items()
        if isinstance(result, Reported) and CONDITIONS[cell.condition].right
    )


def _row(cell: Cell, result: Reported | str) -> str:
    neighbour = "busy" if cell.has_neighbour else "none"
    named = f"| {cell.condition} | {cell.loader} | {neighbour} |"
    if isinstance(result, str):
        return f"{named} not made: {result} | | | | | |"
    shares = [
        f"{seconds / result.lost_s:.0%}" if result.lost_s else ""
        for seconds in (result.right_s, result.wrong_s, result.unknown_s)
    ]
    longest_first = sorted(result.by_reason.items(), key=lambda item: -item[1])
    reasons = ", ".join(f"{name} {seconds:.1f}" for name, seconds in longest_first if seconds > 0)
    return f"{named} {result.idle_s:.1f} | {result.lost_s:.1f} | {' | '.join(shares)} | {reasons} |"
