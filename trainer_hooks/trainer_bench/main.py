"""The command ``trainer-bench``: parses options, prints lines or JSON, and one line per error."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.errors import GpumonError, UsageError
from trainer_hooks.trainer_bench.measuring import Engine
from trainer_hooks.trainer_bench.modes import (
    Outcome,
    Session,
    best_ratio,
    largest_batches,
    prefetching,
    scaling,
    training_runs,
)
from trainer_hooks.trainer_bench.plot import KINDS, require_matplotlib, write_plot

_DESCRIPTION: Final = """\
Measure how fast GPUs train, and which batch sizes and ratios suit them.

Trains a large convolutional net on random images, with Keras on TensorFlow,
and prints samples per second (sps). The first batch is not timed.
"""

_EXAMPLES: Final = """\
examples:
  trainer-bench --batches 64                         the default GPU
  trainer-bench --gpus 0 1 --batches 512 355         two GPUs, 867 samples a step
  trainer-bench --gpus 0 1 --batches 1388 --balance  the ratio that suits them
  trainer-bench --gpus 0 --find-batch                the largest batch that fits
  trainer-bench --batches 256 --scaling 1 2 4       is it worth more GPUs?
  trainer-bench --batches 64 --prefetch 20          what prefetching saves
  trainer-bench --simulate --batches 1388 --balance  the same without a GPU
  trainer-bench --gpus CPU:1 CPU:2 --batches 32 16 --model small
                                                     on logical CPU devices

exit codes: 0 done, 1 the work failed, 2 wrong arguments, 3 no GPU

--json prints one object: trainer_bench (1), simulated, devices, notices, mode
("runs", "balance", "find_batch", "scaling" or "prefetch") and its results;
rates are samples per second, times are seconds, and null means unknown.
"""


_SIMULATED: Final = "SIMULATED: no GPU is used; all figures are simulated"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = _parser().parse_args(argv)
    try:
        _check(args)
        return _run(args)
    except GpumonError as error:
        print(f"trainer-bench: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stdout = None  # the reader closed the pipe
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"trainer-bench: {where}{error.strerror or error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainer-bench",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--batches", nargs="+", type=_count, default=[], metavar="N",
        help="samples per step for each GPU; with --balance one number is their sum, default "
        "512 per GPU",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", nargs="+", type=_gpu, default=[], metavar="GPU",
        help="0 or GPU:0, or CPU:1 for a logical device; default: the default GPU",
    )  # fmt: skip
    parser.add_argument(
        "--runs", type=_count, default=3, metavar="N", help="number of runs; default: 3"
    )
    parser.add_argument(
        "--seconds",
        type=_number(86_400.0, "a number of seconds above 0"),
        default=10.0,
        metavar="S",
        help="length of each run; default: 10",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--balance", action="store_true", help="find the best ratio for the GPUs")
    mode.add_argument("--find-batch", action="store_true", help="find the largest batch that fits")
    mode.add_argument(
        "--scaling", nargs="+", type=_count, metavar="N", help="measure 1, 2, 4, ... GPUs"
    )
    mode.add_argument(
        "--prefetch", metavar="MS", type=_number(60_000.0, "a number of milliseconds above 0"),
        help="measure the gap between batches that take MS milliseconds to make, without and "
        "with prefetch_to_device",
    )  # fmt: skip
    parser.add_argument(
        "--margin", default=0.05, metavar="PART",
        type=_number(0.9, "a number from 0 to 0.9", may_be_0=True),
        help="part of the largest batch to leave free, 0 to 0.9; default: 0.05",
    )  # fmt: skip
    parser.add_argument(
        "--model", choices=("full", "small"), default="full", help="small: for a CPU"
    )
    parser.add_argument(
        "--simulate", nargs="?", const="fast,slow", metavar="fast,slow",
        help="use simulated GPUs, by default the article's two",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object, see below")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="write a plot: .png, .svg or .pdf"
    )
    return parser


def _check(args: argparse.Namespace) -> None:
    if args.plot is not None:
        _check_plot(args.plot)
    if len(set(args.gpus)) < len(args.gpus):
        raise UsageError(f"--gpus {' '.join(args.gpus)} names a GPU twice")
    many = len(args.batches)
    if args.find_batch:
        if many > 1:
            raise UsageError("--find-batch takes one batch size to start with, 64 by default")
    elif not many and not args.balance:
        raise UsageError(
            "You must specify at least one batch size: --batches 64, or with two GPUs "
            "--batches 512 355"
        )
    else:
        _check_numbers(many, args)


def _check_plot(path: Path) -> None:
    if path.suffix not in KINDS:
        raise UsageError(f"--plot {path}: the name must end in .png, .svg or .pdf")
    if path.is_dir():
        raise UsageError(f"--plot {path}: this is a folder, not a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "cannot be written" if path.parent.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"--plot {path}: {why}")
    require_matplotlib()


def _check_numbers(many: int, args: argparse.Namespace) -> None:
    gpus = max(1, len(args.gpus))
    if args.scaling and many > 1:
        raise UsageError("--scaling takes one batch size, for each GPU")
    if not args.scaling and many != gpus and not (args.balance and many < 2):
        error = f"You must specify a batch size for each GPU: {gpus}, not {many}, after --batches"
        more = "" if args.gpus else "; name several GPUs with --gpus 0 1"
        raise UsageError(error + more)


def _run(args: argparse.Namespace) -> int:
    engine = _engine(args)
    session = Session(
        engine=engine,
        gpus=tuple(args.gpus),
        batches=tuple(args.batches),
        seconds=args.seconds,
        is_quiet=args.json,
    )
    if engine.is_simulated:
        session.print(_SIMULATED)
    for line in engine.devices():
        session.print(line)
    outcome = _outcome(session, args)
    if args.json:
        fields = {
            "trainer_bench": 1,
            "simulated": engine.is_simulated,
            "devices": list(engine.devices()),
            "notices": session.notices,
            **outcome.fields,
        }
        print(json.dumps(fields, indent=2))
    if args.plot is not None:
        mark = " (SIMULATED)" if engine.is_simulated else ""
        write_plot(replace(outcome.plot, title=f"{outcome.plot.title}{mark}"), args.plot)
        session.print(f"\nPlot: {args.plot}")
    sys.stdout.flush()
    return 0


def _outcome(session: Session, args: argparse.Namespace) -> Outcome:
    if args.balance:
        return best_ratio(session)
    if args.find_batch:
        return largest_batches(session, args.margin)
    if args.prefetch is not None:
        return prefetching(session, args.prefetch)
    if args.scaling:
        return scaling(session, tuple(sorted(set(args.scaling))))
    return training_runs(session, args.runs)


def _engine(args: argparse.Namespace) -> Engine:
    if args.simulate is not None:
        from trainer_hooks.trainer_bench.simulated_gpus import SimulatedEngine

        return SimulatedEngine(tuple(args.simulate.split(",")))
    from trainer_hooks.trainer_bench.keras_engine import KerasEngine

    return KerasEngine(tuple(args.gpus), size=args.model)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    if int(text) > 1 << 30:
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return int(text)


def _number(most: float, what: str, *, may_be_0: bool = False) -> Callable[[str], float]:
    """Parses a number above 0."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (0 < value <= most or (may_be_0 and value == 0)):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return parse


def _gpu(text: str) -> str:
    if text.isascii() and text.isdigit():
        return f"GPU:{int(text)}"
    if re.fullmatch(r"(GPU|CPU):\d+", text.upper()):
        return text.upper()
    raise argparse.ArgumentTypeError(f"{text!r} is not a GPU: write 0, GPU:0 or CPU:1")
