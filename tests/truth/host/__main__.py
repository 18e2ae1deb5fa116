"""Produce every condition, and compare the reported reasons with it.

python -m tests.truth.host                           all, five times; writes docs/host-truth.md
python -m tests.truth.host --runs 1 --only latency   a quick run; the page is not written
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.truth.host.cells import Cell, Reported, all_cells, reported_of, together
from tests.truth.host.page import is_met, results_table, rivals_table, totals, write
from tests.truth.host.rivals import RIVALS, cells_of_rivals, verdict_by
from tests.truth.host.surroundings import NotHereError, cold_file, slow_server
from tests.truth.host.work import MIB, Stage

_FILE_BYTES: Final = 1024 * MIB


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cells; return 1 if an aim is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, help="of each cell")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run")
    parser.add_argument("--only", default="", help="cells whose name has these words")
    args = parser.parse_args(argv)
    cells = [cell for cell in all_cells() if args.only in str(cell)]
    with (
        tempfile.TemporaryDirectory(prefix="gpumon-truth-") as name,
        cold_file(Path(name), _FILE_BYTES) as file,
        slow_server() as port,
    ):
        stage = Stage(file, port)
        results = {cell: _measured(cell, stage, args) for cell in cells}
        said = {
            cell: {rival: verdict_by(rival, cell, stage, args.seconds) for rival in RIVALS}
            for cell in cells_of_rivals()
            if cell in results
        }
    print(results_table(results), rivals_table(said), totals(results), sep="\n\n")
    if not args.only:
        write(results, said, runs=args.runs, seconds=args.seconds)
    return 0 if is_met(results) else 1


def _measured(cell: Cell, stage: Stage, args: argparse.Namespace) -> Reported | str:
    """The sum of all runs of a cell, or why there is none."""
    runs = []
    for _ in range(args.runs):
        began_s = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="gpumon-truth-") as folder:
                result = reported_of(cell, stage, Path(folder), args.seconds)
        except NotHereError as reason:
            _log(f"{cell}: not made: {reason}")
            return str(reason)
        runs.append(result)
        by_reason = ", ".join(
            f"{name} {reported_s:.1f}" for name, reported_s in result.by_reason.items()
        )
        took_s = time.monotonic() - began_s
        _log(f"{cell}: idle {result.idle_s:.1f} s, reported {by_reason} s  ({took_s:.0f} s)")
    return together(runs)


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
