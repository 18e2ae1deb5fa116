"""The goals of the detector, and how far each way of looking is from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tests.truth.score.evaluation import DAEMON, LOG, TAGGED, Row, Tallies, over
from tests.truth.score.healthy_week import Week
from tests.truth.score.tally import Tally, middle
from tests.truth.workloads import KINDS

_LEAST_RIGHT: Final = 0.99
_MOST_LOST_ERROR: Final = 0.02
_MOST_BURSTS: Final = 2
_LOOKS: Final = (Row(LOG, 0.1), Row(LOG, 1.0), Row(DAEMON, None), Row(TAGGED, None))
WITHOUT_TAGS: Final = ("inference_server", "notebook", "unused", "requests_by_hand", "desktop")
"""Kinds in which nothing trains: no one tags them."""


def goals(tallies: Tallies, kinds: Sequence[str], weeks: Sequence[Week]) -> str:
    """A table in Markdown: a goal a row, a way of looking a column."""
    visible = [kind for kind in kinds if KINDS[kind].is_visible]
    runs = [kind for kind in kinds if kind not in WITHOUT_TAGS]
    looks = [row for row in _LOOKS if any((row, kind) in tallies for kind in kinds)]
    names = [row.detector + (f", {row.period_s:g} s" if row.period_s else "") for row in looks]
    shown = [over(tallies, row, visible) for row in looks]
    everything = [over(tallies, row, kinds) for row in looks]
    tagged = [over(tallies, row, runs) for row in looks]
    lines = [
        f"| goal | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
        _row("precision 0.99, pauses that show", [_at_least(one.precision) for one in shown]),
        _row("precision 0.99, all kinds", [_at_least(one.precision) for one in everything]),
        _row("precision 0.99, trainings", [_at_least(one.precision) for one in tagged]),
        _row("recall 0.99, pauses that show", [_at_least(one.recall) for one in shown]),
        _row("recall 0.99, all kinds", [_at_least(one.recall) for one in everything]),
        _row("lost seconds within 2 %: median", [_lost(one, 50) for one in shown]),
        _row("lost seconds within 2 %: nine in ten", [_lost(one, 90) for one in shown]),
        _row("at most two bursts: median", [_delay(one) for one in shown]),
    ]
    if weeks:
        alarms = sum(one.false_alarms for one in weeks)
        printed = (
            f"met: {alarms} in {len(weeks)}" if alarms == 0 else f"**{alarms} in {len(weeks)}**"
        )
        cells = [printed if row == Row(LOG, 1.0) else "" for row in looks]
        lines.append(_row("no false alarm in a healthy week", cells))
    return "\n".join(lines)


def _row(goal: str, cells: Sequence[str]) -> str:
    return f"| {goal} | {' | '.join(cells)} |"


def _at_least(ratio: float | None) -> str:
    if ratio is None:
        return ""
    missed = _LEAST_RIGHT - ratio
    return f"met: {ratio:.3f}" if missed <= 0 else f"**{ratio:.3f}**, {missed:.3f} short"


def _lost(tally: Tally, percentile: int) -> str:
    if not tally.lost_errors:
        return ""
    error = float(np.percentile(np.abs(tally.lost_errors), percentile))
    return f"met: {error:.1%}" if error <= _MOST_LOST_ERROR else f"**{error:.1%}**"


def _delay(tally: Tally) -> str:
    bursts = middle(tally.delays)
    if bursts is None:
        return ""
    return f"met: {bursts:g}" if bursts <= _MOST_BURSTS else f"**{bursts:g}**"
