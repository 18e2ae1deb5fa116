"""Produce every condition, and compare the reported reasons with it.

python -m tests.truth.host                           all, five times; writes docs/host-truth.md
python -m tests.truth.host --runs 1 --only latency   a quick run; the page is not written
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.truth.host.cells import Cell, Reported, all_cells, reported_of, together
from tests.truth.host.page import is_met, results_table, totals, write
from tests.truth.host.surroundings import NotHereError, stage_of
from tests.truth.host.work import MIB, Stage
from tests.truth.tables import parser


def main() -> int:
    """Run the cells; return 1 if a goal is missed."""
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=5, help="of each cell")
    arguments.add_argument("--seconds", type=float, default=10.0, help="of each run")
    arguments.add_argument("--only", default="", help="cells whose name contains this text")
    args = arguments.parse_args()
    with stage_of(1024 * MIB) as stage:
        results = {
            cell: _measured(cell, stage, args) for cell in all_cells() if args.only in str(cell)
        }
    print(results_table(results), totals(results), sep="\n\n")
    if not args.only:
        write(results, runs=args.runs, seconds=args.seconds)
    return 0 if is_met(results) else 1


def _measured(cell: Cell, stage: Stage, args: argparse.Namespace) -> Reported | str:
    """The sum of all runs of a cell, or why there is none."""
    runs = []
    for _ in range(args.runs):
        try:
            with tempfile.TemporaryDirectory(prefix="gpumon-truth-") as folder:
                runs.append(reported_of(cell, stage, Path(folder), args.seconds))
        except NotHereError as reason:
            print(f"{cell}: not made: {reason}", file=sys.stderr, flush=True)
            return str(reason)
        print(f"{cell}: {runs[-1]}", file=sys.stderr, flush=True)
    return together(runs)


if __name__ == "__main__":
    sys.exit(main())
