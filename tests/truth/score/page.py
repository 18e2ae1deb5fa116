"""The tables of ``docs/accuracy-tables.md``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from tests.truth.measured_page import put
from tests.truth.score.evaluation import BARE, DAEMON, LOG, TAGGED, Row, Tallies, over
from tests.truth.score.goals import goals
from tests.truth.score.healthy_week import HOURS, Week
from tests.truth.score.tally import Tally, middle, worst_of_nine_in_ten
from tests.truth.workloads import KINDS

COMMAND: Final = "python -m tests.truth.score"
MARK: Final = "detector"

_ALL_HEAD: Final = """\
| detector | a reading each | precision | recall | F1 | lost seconds, error \
| input's seconds, error | IoU | delay, bursts | alarms a healthy day | other losses accused |
|---|---|---|---|---|---|---|---|---|---|---|"""
_KIND_HEAD: Final = """\
| kind of workload | GPUs | starved | {} |
|---|---|---|{}"""


def printed(
    tallies: Tallies, rows: Sequence[Row], kinds: Sequence[str], weeks: Sequence[Week]
) -> str:
    """All tables, in Markdown."""
    visible = [kind for kind in kinds if KINDS[kind].is_visible]
    blocks = [goals(tallies, kinds, weeks)]
    if visible and len(visible) < len(kinds):
        blocks += ["Kinds whose pauses a driver can show:", _table(tallies, rows, visible)]
    blocks += ["All kinds:", _table(tallies, rows, kinds), _by_kind(tallies, rows, kinds)]
    blocks += _borderline(tallies, rows, visible)
    if weeks:
        blocks.append(_weeks(weeks))
    return "\n\n".join(blocks)


def write(tables: str, seeds: range, hours: float) -> None:
    """Put them onto the page."""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    output = (
        f"`{COMMAND}`, {today}: {len(seeds)} workloads of each kind, {hours:g} h each, evaluation "
        f"seeds {seeds[0]} to {seeds[-1]}."
    )
    put(MARK, f"{output}\n\n{tables}")


def _table(tallies: Tallies, rows: Sequence[Row], kinds: Sequence[str]) -> str:
    lines = [_line(row, over(tallies, row, kinds)) for row in rows]
    return "\n".join([_ALL_HEAD, *lines])


def _line(row: Row, tally: Tally) -> str:
    name = f"**{row.detector}**" if row.detector in (LOG, BARE, DAEMON, TAGGED) else row.detector
    period = "" if row.period_s is None else f"{row.period_s:g} s"
    cells = [
        name, period, _ratio(tally.precision), _ratio(tally.recall), _ratio(tally.f1),
        _error(tally.lost_errors), _error(tally.starved_errors), _ratio(middle(tally.ious)),
        _number(middle(tally.delays)), _number(tally.alarms_per_day, 2),
        f"{tally.false - tally.false_on_healthy} of {tally.false + tally.quiet}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _by_kind(tallies: Tallies, rows: Sequence[Row], kinds: Sequence[str]) -> str:
    """Right verdicts of each kind, at one period of the logs."""
    logs = [row.period_s for row in rows if row.detector == LOG]
    period_s = 1.0 if 1.0 in logs else logs[0]
    shown = [row for row in rows if row.period_s in (None, period_s)]
    head = " | ".join(row.detector for row in shown)
    title = f"Right verdicts of each kind (logs: a reading each {period_s:g} s):"
    lines = [_kind_line(tallies, kind, shown) for kind in kinds]
    return "\n".join([f"{title}\n", _KIND_HEAD.format(head, "---|" * len(shown)), *lines])


def _kind_line(tallies: Tallies, kind: str, shown: Sequence[Row]) -> str:
    counted = [over(tallies, row, [kind]) for row in shown]
    first = counted[0]
    gpus, starved = _gpus(first), first.right + first.missed
    right = [f"{one.right + one.quiet} of {_gpus(one)}" if _gpus(one) else "" for one in counted]
    mark = "" if KINDS[kind].is_visible else " (not visible)"
    return f"| {kind}{mark} | {gpus} | {starved} | {' | '.join(right)} |"


def _borderline(tallies: Tallies, rows: Sequence[Row], kinds: Sequence[str]) -> list[str]:
    """How far from the limit those are that were missed in logs."""
    sentences = []
    for row in rows:
        missed = sorted(over(tallies, row, kinds).missed_ratios)
        if row.detector == LOG and row.period_s is not None and row.period_s <= 1.0 and missed:
            half = missed[len(missed) // 2]
            sentences.append(
                f"Missed at {row.period_s:g} s, of kinds whose pauses show: {len(missed)} GPUs, "
                f"which starve for {missed[0]:.1%} to {missed[-1]:.1%} of their time in use, half "
                f"of them for less than {half:.1%}."
            )
    return sentences


def _gpus(tally: Tally) -> int:
    return tally.right + tally.false + tally.missed + tally.quiet


def _weeks(weeks: Sequence[Week]) -> str:
    alarms = sum(one.false_alarms for one in weeks)
    suspected_s = sum(one.suspected_s for one in weeks)
    lost = ", ".join(f"{one.lost_ratio:.1%}" for one in weeks)
    return (
        f"Healthy weeks ({HOURS:g} h each, a reading a second, {lost} of the time in use lost): "
        f"{alarms} false alarms in {len(weeks)} weeks; {suspected_s:.1f} s called suspect."
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _number(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _error(errors: list[float]) -> str:
    half, most = middle(errors), worst_of_nine_in_ten(errors)
    return "" if half is None or most is None else f"{half:+.1%}, nine in ten within {most:.1%}"
