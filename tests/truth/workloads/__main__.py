"""List the kinds of workloads, print the truth of one, or write its log.

python -m tests.truth.workloads                          list the kinds
python -m tests.truth.workloads worker_waves 7           the truth of one
python -m tests.truth.workloads rounds 1 --csv > log.csv its log, for gpumon analyze
"""

from __future__ import annotations

import signal
import sys

import numpy as np

from tests.truth.tables import parser
from tests.truth.workloads.catalog import KINDS, workload
from tests.truth.workloads.csv_log import as_csv
from tests.truth.workloads.spans import Spans, lengths_ms


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("kind", nargs="?", choices=[*KINDS], metavar="KIND")
    arguments.add_argument("seed", nargs="?", type=int, default=0, metavar="SEED")
    arguments.add_argument("--hours", type=float, default=2.0, help="how long (default: 2)")
    arguments.add_argument("--period", type=float, default=1.0, help="seconds a row (default: 1)")
    arguments.add_argument("--csv", action="store_true", help="print the log")
    args = arguments.parse_args()
    if args.kind is None:
        for name, kind in KINDS.items():
            late = "late loader" if kind.is_late else "none late"
            visible = "visible" if kind.is_visible else "flat"
            print(f"{name:26}{late:13}{visible:9}{(kind.make.__doc__ or '').splitlines()[0]}")
        return
    made = workload(args.kind, args.seed, args.hours)
    if args.csv:
        sys.stdout.write(as_csv(made, args.period, np.random.default_rng(args.seed)))
        return
    for index, gpu in enumerate(made.gpus):
        print(
            f"GPU {index}: in use {gpu.in_use_ms / 1e3:.1f} s, starved {gpu.starved_ratio:.1%}"
            f"\n  lost:    {_pauses(gpu.lost)}\n  starved: {_pauses(gpu.starved)}"
        )


def _pauses(spans: Spans) -> str:
    if not len(spans):
        return "no pause"
    half, most, longest = np.quantile(lengths_ms(spans), (0.5, 0.95, 1.0)) / 1_000
    return f"{len(spans)} pauses, p50 {half:.3g} s, p95 {most:.3g} s, longest {longest:.3g} s"


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as `cat` ends once `head` has enough
    main()
