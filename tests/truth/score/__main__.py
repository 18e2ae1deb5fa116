"""Evaluate every detector on synthetic workloads, and write ``docs/accuracy-tables.md``.

python -m tests.truth.score                       the evaluation seeds; writes the page
python -m tests.truth.score --development 0 20    seeds that the detector may be tuned on; prints
python -m tests.truth.score --development 0 5 --kind notebook --period 1 --no-daemon
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from tests.truth.score.detectors import found_in_logs
from tests.truth.score.tally import (
    BARE,
    DAEMON,
    LOG,
    PERIODS_S,
    TAGGED,
    Row,
    Tallies,
    Tally,
    Work,
    evaluate,
    over,
    rows,
)
from tests.truth.tables import parser, progress, put, table, today
from tests.truth.workloads import EVALUATION_SEEDS, KINDS, UNTAGGED, workload
from tests.truth.workloads.seeing import seen_all

WEEK_HOURS: Final = 168.0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print or write the tables."""
    args = _parsed(argv)
    seeds = range(*args.development) if args.development else EVALUATION_SEEDS[: args.seeds]
    kinds = args.kind or list(KINDS)
    periods_s = tuple(args.period or PERIODS_S)
    daemons = () if args.no_daemon else (DAEMON, TAGGED)
    work = [Work(kind, seed, args.hours, periods_s, daemons) for seed in seeds for kind in kinds]
    with progress("workloads", len(work) + args.weeks) as done_one:
        tallies = evaluate(work, done_one)
        alarms = []
        for number in range(args.weeks):
            alarms.append(false_alarms(seeds[0] + number))
            done_one()
    tables = _tables(tallies, rows(periods_s), kinds, alarms)
    print(tables)
    if not args.development and not args.kind and not args.period and not args.no_daemon:
        put(
            "detector",
            f"`python -m tests.truth.score`, {today()}: {len(seeds)} workloads of each kind, "
            f"{args.hours:g} h each, evaluation seeds {seeds[0]} to {seeds[-1]}.\n\n{tables}",
        )
    return 0


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=12, help="evaluation seeds of each kind")
    arguments.add_argument("--development", type=int, nargs=2, metavar=("FROM", "TO"))
    arguments.add_argument("--hours", type=float, default=2.0, help="length of a workload")
    arguments.add_argument("--kind", action="append", choices=sorted(KINDS))
    arguments.add_argument("--period", type=float, action="append", help="of the logs, in seconds")
    arguments.add_argument("--weeks", type=int, default=3, help="healthy weeks")
    arguments.add_argument("--no-daemon", action="store_true", help="logs alone")
    return arguments.parse_args(argv)


def false_alarms(seed: int, hours: float = WEEK_HOURS) -> int:
    """On a healthy GPU, logged every second for a week."""
    made = workload("healthy_prefetch", seed, hours)
    seen = seen_all(made, 1.0, np.random.default_rng(seed))
    return sum(one.is_starved for one in found_in_logs(made, seen, when=False))


def _tables(
    tallies: Tallies, shown: Sequence[Row], kinds: Sequence[str], alarms: Sequence[int]
) -> str:
    blocks = [_goals(tallies, kinds), "All kinds:", _all_kinds(tallies, shown, kinds)]
    blocks.append(_by_kind(tallies, shown, kinds))
    if alarms:
        blocks.append(
            f"Healthy weeks, a reading a second: {sum(alarms)} false alarms in {len(alarms)} weeks."
        )
    return "\n\n".join(blocks)


def _goals(tallies: Tallies, kinds: Sequence[str]) -> str:
    every_column = (Row(LOG, 0.1), Row(LOG, 1.0), Row(DAEMON, None), Row(TAGGED, None))
    columns = [row for row in every_column if any((row, kind) in tallies for kind in kinds)]
    visible = [over(tallies, row, [k for k in kinds if KINDS[k].is_visible]) for row in columns]
    every = [over(tallies, row, kinds) for row in columns]
    tagged = [over(tallies, row, [k for k in kinds if k not in UNTAGGED]) for row in columns]
    return table(
        ["goal", *map(str, columns)],
        [
            ["precision 0.99, visible pauses", *(_at_least(one.precision) for one in visible)],
            ["precision 0.99, all kinds", *(_at_least(one.precision) for one in every)],
            ["precision 0.99, training runs", *(_at_least(one.precision) for one in tagged)],
            ["recall 0.99, visible pauses", *(_at_least(one.recall) for one in visible)],
            ["recall 0.99, all kinds", *(_at_least(one.recall) for one in every)],
            ["lost seconds within 2 %: median", *(_lost(one, 50) for one in visible)],
            ["lost seconds within 2 %: nine in ten", *(_lost(one, 90) for one in visible)],
        ],
    )


def _at_least(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"met: {ratio:.3f}" if ratio >= 0.99 else f"**{ratio:.3f}**, {0.99 - ratio:.3f} short"


def _lost(tally: Tally, percentile: int) -> str:
    if not tally.lost_errors:
        return ""
    error = float(np.percentile(np.abs(tally.lost_errors), percentile))
    return f"met: {error:.1%}" if error <= 0.02 else f"**{error:.1%}**"


def _all_kinds(tallies: Tallies, shown: Sequence[Row], kinds: Sequence[str]) -> str:
    heads = ["detector", "a reading each", "precision", "recall", "lost seconds, error"]
    heads += ["input's seconds, error", "delay, bursts", "alarms a healthy day"]
    body = []
    for row in shown:
        tally = over(tallies, row, kinds)
        is_ours = row.detector in (LOG, BARE, DAEMON, TAGGED)
        delay = f"{np.median(tally.delays):.0f}" if tally.delays else ""
        body.append([
            f"**{row.detector}**" if is_ours else row.detector,
            "" if row.period_s is None else f"{row.period_s:g} s",
            _number(tally.precision, 3), _number(tally.recall, 3),
            _error(tally.lost_errors), _error(tally.starved_errors),
            delay, _number(tally.alarms_per_day, 2),
        ])  # fmt: skip
    return table(heads, body)


def _by_kind(tallies: Tallies, shown: Sequence[Row], kinds: Sequence[str]) -> str:
    """Right verdicts of each kind, at one period of the logs."""
    logs = [row.period_s for row in shown if row.detector == LOG]
    period_s = 1.0 if 1.0 in logs else logs[0]
    columns = [row for row in shown if row.period_s in (None, period_s)]
    body = []
    for kind in kinds:
        counted = [over(tallies, row, [kind]) for row in columns]
        name = kind if KINDS[kind].is_visible else f"{kind} (not visible)"
        right = [f"{one.right + one.quiet} of {one.gpus}" if one.gpus else "" for one in counted]
        body.append([name, counted[0].gpus, counted[0].right + counted[0].missed, *right])
    heads = ["kind of workload", "GPUs", "starved", *(row.detector for row in columns)]
    title = f"Right verdicts of each kind (logs: a reading each {period_s:g} s):"
    return f"{title}\n\n{table(heads, body)}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _error(errors: Sequence[float]) -> str:
    if not errors:
        return ""
    most = np.percentile(np.abs(errors), 90)
    return f"{np.median(errors):+.1%}, nine in ten within {most:.1%}"


if __name__ == "__main__":
    sys.exit(main())
