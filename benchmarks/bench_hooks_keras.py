"""What does a callback cost a Keras fit: none, an empty one, gpumon's, and nvitop's, in turns?

    python -m benchmarks.bench_hooks_keras --backends jax --rounds 5

``period``: a step on a device that works for 10 ms, and the CPU used meanwhile. ``hidden``: JAX
with steps of 10 ms while the host prepares each batch for 4 ms: a hook that waited for the device
would add those. ``hook``: the calls that Keras makes in a step, in a loop of their own, so that the
hook's code is alone, and hot. ``code``: Keras' own loop around a step that does nothing (on
TensorFlow, a graph of one small layer): CPU with the hook minus CPU without. Each backend runs in
the environment that `make test` made for it; `make bench-hooks` adds nvitop's. Where the bare
training varies more than a goal is wide, that is reported and the goal not evaluated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rivals.environments import (
    ROOT,
    NotInstalledError,
    framework_python,
    nvitop_folder,
)
from benchmarks.rivals.gpu_of_truth import GpuOfTruth
from benchmarks.rivals.spread import Spread, calmest, differences, spread_of
from tests.fakenvml.build import NoCompilerError

BACKENDS = ("jax", "tensorflow", "torch")
STEP_US = 10_000.0
SHARE_GOAL = 0.01
CALM_LIMITS = 4.0
"""A machine is calm while the middle half of the bare steps is within so many limits."""
HIDDEN_GOAL_US = 2_000.0
HOOK_GOAL_US = 5.0
CODE_LIMIT_US = 100.0
STEPS = {"period": 80, "hidden": 100, "hook": 3000, "code": 3000}

Figures = dict[str, Any]


def main() -> int:
    """Print a table for each backend; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--only", choices=tuple(STEPS), help="one part of it")
    parser.add_argument("--rounds", type=int, default=15, help="of each (default 15)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    args = parser.parse_args()
    parts = {
        "period": (measure_period, BACKENDS),
        "hidden": (measure_hidden, ("jax",)),  # the others wait for each step
        "hook": (measure_hook, ("jax", "torch")),  # TensorFlow fetches in its graph
        "code": (measure_code, BACKENDS),
    }
    figures: Figures = {}
    for backend in args.backends:
        try:
            fits = Fits(backend, framework_python(backend), args.rounds)
        except NotInstalledError as missing:
            print(f"SKIPPED: {backend}: {missing}")
            continue
        figures[backend] = {
            name: measure(fits)
            for name, (measure, backends) in parts.items()
            if args.only in (None, name) and backend in backends
        }
    if args.json:
        print(json.dumps(figures))
    return int(any(not part["met"] for parts in figures.values() for part in parts.values()))


@dataclass(frozen=True)
class Fits:
    """Fits in the interpreter of one backend."""

    backend: str
    python: Path
    rounds: int

    def taken(self, kind: str, variants: list[str], environ: dict[str, str]) -> Figures:
        """Fit in turns; each variant's figures, round by round."""
        words = ["--kind", kind, "--steps", str(STEPS[kind]), "--rounds", str(self.rounds)]
        words += ["--variants", *variants]
        found = ":".join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
        taken: Figures = {name: [] for name in variants}
        with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
            ours = {"GPUMON_RUNTIME_DIR": folder, "KERAS_BACKEND": self.backend}
            process = subprocess.Popen(
                [self.python, "-m", "benchmarks.rivals.keras_fits", *words],
                env={**environ, **ours, "PYTHONPATH": found},
                cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            assert process.stdout is not None
            for line in filter(lambda line: line.startswith("{"), process.stdout):
                row = json.loads(line)
                taken[row["variant"]].append(row)
                if len({len(rows) for rows in taken.values()}) == 1:
                    done = f"{self.backend}, {kind}: round {row['round'] + 1} of {self.rounds}"
                    print(done, file=sys.stderr, flush=True)
            if process.wait():
                log.seek(0)
                raise SystemExit(f"{self.backend}, {kind} failed:\n{log.read()[-2000:]}")
        return taken


def measure_period(fits: Fits) -> Figures:
    """A step on a device that works 10 ms; on TensorFlow also with nvitop's callback."""
    variants = ["bare", "empty", "gpumon"]
    with contextlib.ExitStack() as stack:
        environ = dict(os.environ)
        if fits.backend == "tensorflow":
            try:
                environ = stack.enter_context(environ_of_nvitop())
                variants.append("nvitop")
            except (NotInstalledError, NoCompilerError) as missing:
                print(f"SKIPPED: {missing}")
        taken = fits.taken("period", variants, environ)
    print(f"\n{fits.backend}: microseconds a step of 10 ms, in the calmest tenth of the stretches")
    table: Figures = {}
    for name in variants:
        row: Figures = {"us": calm(taken, name, "us")}
        for key in ("us", "thread_us", "cpu_us"):
            row[f"added_{key}"] = calm(taken, name, key) - calm(taken, "bare", key)
        row["median_added_us"] = added(taken, name, "us")
        table[name] = row
        print(
            f"  {name:7}{row['us']:6.0f}  added {row['added_us']:+.0f} "
            f"= {row['added_us'] / STEP_US:+.1%}; CPU of its thread {row['added_thread_us']:+.0f}"
            f", of all {row['added_cpu_us']:+.0f}; all rounds {row['median_added_us']:+.0f}"
        )
    limit_us, bare = SHARE_GOAL * STEP_US, spread_of(_figures(taken, "bare", "us"))
    table["bare_spread_us"], is_calm = bare, bare.high - bare.low <= CALM_LIMITS * limit_us
    table["met"] = not is_calm or table["gpumon"]["added_us"] <= limit_us
    word = _word(table["met"]) if is_calm else f"not evaluated, bare alone takes {bare:.0f}"
    print(f"  goal: gpumon adds at most {SHARE_GOAL:.0%} of 10 ms: {word}")
    return table


def measure_hidden(fits: Fits) -> Figures:
    """Steps that JAX computes while the host prepares the next batch."""
    variants = ["bare", "empty", "gpumon"]
    taken = fits.taken("hidden", variants, dict(os.environ))
    print(f"\n{fits.backend}, input hidden behind the device: microseconds a step")
    table: Figures = {}
    for name in variants:
        steps_us = calm(taken, name, "us")
        table[name] = {"us": steps_us, "added_us": steps_us - calm(taken, "bare", "us")}
        print(f"  {name:7}{steps_us:6.0f}  added {table[name]['added_us']:+.0f}")
    table["met"] = table["gpumon"]["added_us"] <= HIDDEN_GOAL_US
    print(f"  goal: at most {HIDDEN_GOAL_US:.0f}, half of the input: {_word(table['met'])}")
    return table


def measure_hook(fits: Fits) -> Figures:
    """The hook's own code, hot: alone, and with a callback such as the progress bar."""
    variants = ["bare", "gpumon", "ending", "ending+four", "gpumon+ending"]
    taken = fits.taken("hook", variants, dict(os.environ))
    us = {name: min(_figures(taken, name, "us")) for name in variants}
    figures = {
        "alone_us": us["gpumon"] - us["bare"],
        "beside_us": us["gpumon+ending"] - us["ending"],
        "calls_beside_us": us["ending+four"] - us["ending"],
    }
    print(
        f"\n{fits.backend}: microseconds of the hook's code a step, hot, the fastest of all rounds"
    )
    print(f"  the only callback of a silent fit   {figures['alone_us']:.1f}")
    print(f"  with a progress bar                 {figures['beside_us']:.1f}")
    print(f"    Keras' own call, included         {figures['calls_beside_us']:.1f}")
    is_met = figures["alone_us"] <= HOOK_GOAL_US
    print(f"  goal: at most {HOOK_GOAL_US:g} us alone: {_word(is_met)}")
    return {**figures, "met": is_met}


def measure_code(fits: Fits) -> Figures:
    """CPU of the hook alone, and with another callback, which makes Keras wait each step."""
    variants = ["bare", "two", "gpumon", "empty", "gpumon+empty"]
    taken = fits.taken("code", variants, dict(os.environ))
    us = {name: calm(taken, name, "us") for name in variants}
    figures = {
        "alone_us": us["gpumon"] - us["bare"],
        "calling_us": us["two"] - us["bare"],
        "beside_us": us["gpumon+empty"] - us["empty"],
    }
    print(f"\n{fits.backend}: microseconds of CPU that an empty step gains, in the calmest fits")
    print(f"  gpumon, the only callback           {figures['alone_us']:+.1f}")
    print(f"  two callbacks with nothing in them  {figures['calling_us']:+.1f}")
    print(f"  gpumon with another callback        {figures['beside_us']:+.1f}")
    is_met = figures["alone_us"] <= CODE_LIMIT_US
    print(f"  limit: 1 % of a step of 10 ms, {CODE_LIMIT_US:g} us alone: {_word(is_met)}")
    return {**figures, "met": is_met}


@contextlib.contextmanager
def environ_of_nvitop() -> Iterator[dict[str, str]]:
    """Where nvitop is found, and a driver that answers it."""
    found = nvitop_folder()
    with (
        tempfile.TemporaryDirectory() as name,
        GpuOfTruth(Path(name), Path(name) / "busy.jsonl") as gpu,
    ):
        yield {**gpu.environ, "PYTHONPATH": str(found)}


def calm(taken: Figures, name: str, key: str) -> float:
    """A variant's figure where the machine disturbed it least."""
    return calmest(_figures(taken, name, key))


def _figures(taken: Figures, name: str, key: str) -> list[float]:
    return [figure for row in taken[name] for figure in row[key]]


def added(taken: Figures, name: str, key: str) -> Spread:
    """What a variant has more than none, round by round, whatever the machine did."""
    medians = [[statistics.median(row[key]) for row in taken[one]] for one in (name, "bare")]
    return spread_of(differences(*medians))


def _word(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
