"""Looks at made-up workloads through every detector, and writes ``docs/accuracy-tables.md``.

python -m tests.truth.score                       the evaluation seeds; the page is written
python -m tests.truth.score --development 0 20    seeds that the detector may be tuned on; printed
python -m tests.truth.score --development 0 5 --kind notebook --period 1 --no-daemon
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.progress import Progress

from tests.truth.score.evaluation import DAEMON, PERIODS_S, TAGGED, Work, evaluate, rows
from tests.truth.score.healthy_week import week
from tests.truth.score.page import printed, write
from tests.truth.workloads import EVALUATION_SEEDS, KINDS

SEEDS = 12
HOURS = 2.0
WEEKS = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; the figures are on the page or on the screen."""
    args = _parser().parse_args(argv)
    seeds = range(*args.development) if args.development else EVALUATION_SEEDS[: args.seeds]
    kinds = args.kind or list(KINDS)
    periods_s = tuple(args.period or PERIODS_S)
    work = [
        Work(kind, seed, args.hours, periods_s, () if args.no_daemon else (DAEMON, TAGGED))
        for seed in seeds
        for kind in kinds
    ]
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("workloads", total=len(work) + args.weeks)
        tallies = evaluate(work, lambda: progress.advance(task), None)
        weeks = []
        for number in range(args.weeks):
            weeks.append(week(seeds[0] + number))
            progress.advance(task)
    tables = printed(tallies, rows(periods_s), kinds, weeks)
    print(tables)
    if not args.development and not args.kind and not args.period and not args.no_daemon:
        write(tables, seeds, args.hours)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="evaluation seeds of each kind")
    parser.add_argument("--development", type=int, nargs=2, metavar=("FROM", "TO"))
    parser.add_argument("--hours", type=float, default=HOURS, help="length of a workload")
    parser.add_argument("--kind", action="append", choices=sorted(KINDS))
    parser.add_argument("--period", type=float, action="append", help="of the logs, in seconds")
    parser.add_argument("--weeks", type=int, default=WEEKS, help="healthy weeks")
    parser.add_argument("--no-daemon", action="store_true", help="logs alone")
    return parser


if __name__ == "__main__":
    sys.exit(main())
