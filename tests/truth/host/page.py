"""The tables of ``docs/host-truth.md``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.rivals.tools import PINNED
from tests.truth.host.cells import Cell, Told, together
from tests.truth.host.conditions import CONDITIONS, CORES
from tests.truth.host.rivals import RIVALS
from tests.truth.measured_page import put

PAGE: Final = Path(__file__).parents[3] / "docs" / "host-truth.md"
COMMAND: Final = "python -m tests.truth.host"
LEAST_RIGHT, MOST_WRONG = 0.90, 0.02
"""Of the seconds lost, over all cells."""
_HEAD: Final = """\
| condition | loader | neighbour | GPU idle | told | right | wrong | unknown | by reason |
|---|---|---|---|---|---|---|---|---|"""

Results = Mapping[Cell, Told | str]
"""What was told of each cell; or why it was not made."""
Said = Mapping[Cell, Mapping[str, str]]
"""What each rival said of a cell."""


def conditions_table() -> str:
    """What is right, and why."""
    rows = [
        f"| {name} | {' or '.join(one.right) or 'none'} | {one.why} |"
        for name, one in CONDITIONS.items()
    ]
    return "\n".join(["| condition | right reason | why |", "|---|---|---|", *rows])


def results_table(results: Results) -> str:
    """A row a cell."""
    return "\n".join([_HEAD, *(_row(cell, told) for cell, told in results.items())])


def rivals_table(said: Said) -> str:
    """What they say, beside what is right."""
    rows = [
        f"| {cell.condition} | {cell.loader} | {' or '.join(CONDITIONS[cell.condition].right)} "
        f"| {' | '.join(words[rival].replace('|', '') for rival in RIVALS)} |"
        for cell, words in said.items()
    ]
    tools = " | ".join(PINNED[rival].replace("==", " ") for rival in RIVALS)
    head = f"| condition | loader | right reason | {tools} |\n|---|---|---|{'---|' * len(RIVALS)}"
    return "\n".join([head, *rows])


def totals(results: Results) -> str:
    """All cells that lose anything, in one sentence."""
    told = _in_all(results)
    if not told.lost_s:
        return "Nothing was lost."
    right, wrong = told.right_s / told.lost_s, told.wrong_s / told.lost_s
    verdict = "met" if is_met(results) else "**missed**"
    return (
        f"Of {told.lost_s:.0f} s lost, {right:.1%} have a right reason (aim: {LEAST_RIGHT:.0%} at "
        f"least), {wrong:.1%} a wrong one (aim: {MOST_WRONG:.0%} at most), "
        f"{told.unknown_s / told.lost_s:.1%} none: {verdict}."
    )


def is_met(results: Results) -> bool:
    """Whether enough of the seconds have a right reason, and few enough a wrong one."""
    told = _in_all(results)
    is_right = told.right_s >= LEAST_RIGHT * told.lost_s > 0
    return is_right and told.wrong_s <= MOST_WRONG * told.lost_s


def write(results: Results, of_rivals: Said, *, runs: int, seconds: float) -> None:
    """Put all tables into the page."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    said = (
        f"`{COMMAND}`, {today}: {runs} runs of {seconds:g} s a cell on {CORES} cores, load average "
        f"{os.getloadavg()[1]:.1f}. Seconds are the sums of all runs."
    )
    put("conditions", conditions_table(), PAGE)
    put("reasons", f"{said}\n\n{results_table(results)}\n\n{totals(results)}", PAGE)
    put("rivals", rivals_table(of_rivals), PAGE)


def _in_all(results: Results) -> Told:
    """Without the cells that lose nothing: what little is told there is no reason's doing."""
    return together(
        told
        for cell, told in results.items()
        if isinstance(told, Told) and CONDITIONS[cell.condition].right
    )


def _row(cell: Cell, told: Told | str) -> str:
    neighbour = "busy" if cell.has_neighbour else "none"
    named = f"| {cell.condition} | {cell.loader} | {neighbour} |"
    if isinstance(told, str):
        return f"{named} not made: {told} | | | | | |"
    shares = [
        f"{seconds / told.lost_s:.0%}" if told.lost_s else ""
        for seconds in (told.right_s, told.wrong_s, told.unknown_s)
    ]
    longest_first = sorted(told.by_reason.items(), key=lambda item: -item[1])
    reasons = ", ".join(f"{name} {seconds:.1f}" for name, seconds in longest_first if seconds > 0)
    return f"{named} {told.idle_s:.1f} | {told.lost_s:.1f} | {' | '.join(shares)} | {reasons} |"
