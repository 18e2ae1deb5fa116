"""Look at a workload: its truth, and how a log would see it.

python -m tests.truth.workloads                          list the kinds
python -m tests.truth.workloads worker_waves 7           one: its truth and first GPU
python -m tests.truth.workloads cold_cache 3 --minutes 0 120 --period 1    as sampled
python -m tests.truth.workloads rounds 1 --csv > log.csv                   its log
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import numpy as np

from tests.truth.workloads.catalog import KINDS, workload
from tests.truth.workloads.csv_log import as_csv
from tests.truth.workloads.picture import described, lane, numbers_of, seen_lane
from tests.truth.workloads.seeing import seen_all
from tests.truth.workloads.truth import Workload

_MINUTE_MS = 60_000


def main(argv: Sequence[str] | None = None) -> int:
    """List the kinds, or show one workload."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.truth.workloads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", nargs="?", choices=[*KINDS], metavar="KIND")
    parser.add_argument("seed", nargs="?", type=int, default=0, metavar="SEED")
    parser.add_argument("--hours", type=float, default=2.0, help="how long (default: 2)")
    parser.add_argument("--period", type=float, help="also show a log of this many seconds a row")
    parser.add_argument(
        "--minutes",
        nargs=2,
        type=float,
        default=(10.0, 13.0),
        metavar=("FROM", "TO"),
        help="what the lanes show (default: 10 13)",
    )
    parser.add_argument("--width", type=int, default=100, help="of a lane, in characters")
    parser.add_argument("--csv", action="store_true", help="print the log instead, for gpumon")
    args = parser.parse_args(argv)
    if args.kind is None:
        _list_kinds()
        return 0
    if args.seed < 0 or args.hours <= 0 or (args.period is not None and args.period <= 0):
        parser.error("SEED is 0 or more, --hours and --period are above 0")
    made = workload(args.kind, args.seed, args.hours)
    if args.csv:
        sys.stdout.write(as_csv(made, args.period or 1.0, np.random.default_rng(args.seed)))
        return 0
    from_ms, to_ms = (round(minute * _MINUTE_MS) for minute in args.minutes)
    if not 0 <= from_ms < to_ms:
        parser.error("--minutes wants two times, the second after the first")
    _show(made, from_ms, to_ms, args.width, args.period)
    return 0


def _list_kinds() -> None:
    for kind in KINDS.values():
        late = "late loader" if kind.is_late else "none late"
        visible = "visible" if kind.is_visible else "flat"
        print(f"{kind.name:26}{late:13}{visible:9}{kind.models}")


def _show(made: Workload, from_ms: int, to_ms: int, width: int, period_s: float | None) -> None:
    print(described(made))
    rng = np.random.default_rng(made.seed)
    logs = seen_all(made, period_s, rng) if period_s else (None,) * len(made.gpus)
    print(f"lanes: minute {from_ms / _MINUTE_MS:g} to {to_ms / _MINUTE_MS:g}")
    for index, (gpu, log) in enumerate(zip(made.gpus, logs, strict=True)):
        print("\n".join([*numbers_of(index, gpu), *lane(gpu, from_ms, to_ms, width)]))
        if log is not None:
            print(seen_lane(log, from_ms, to_ms, width))


if __name__ == "__main__":
    # As `cat` does when `head` has seen enough.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    raise SystemExit(main())
