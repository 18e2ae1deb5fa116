"""What does a hook cost a torch loop, and is its report true: gpumon and two rivals?

    python -m benchmarks.bench_hooks_torch_loop --only truth --json

The same loop runs bare, with gpumon's ``timed()``, ``phase()`` and ``step()``, with TraceML 0.5.0
and with gpuprof 0.7.1, in turns. ``cost``: the time and memory added to each step. ``start``: the
time added to a run, and whether the script's exit code is kept. ``truth``: training runs whose
trouble the script measures itself, and the report of each tool. `make bench-hooks` makes the
environment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.rivals import process_tree
from benchmarks.rivals.environments import NotInstalledError, rivals_python
from benchmarks.rivals.gpu_of_truth import GpuOfTruth
from benchmarks.rivals.spread import calmest, differences, spread_of
from benchmarks.rivals.tools import (
    NOTHING,
    PINNED,
    TOOLS,
    ToolOutput,
    environ_for,
    gpumon_output,
    gpuprof_output,
    is_there,
    traceml_output,
    words_for,
)
from benchmarks.rivals.torch_cases import COST_CASES, START_CASE, TRUTH_CASES, Case
from tests.daemon import RunningDaemon
from tests.fakenvml.build import NoCompilerError

EXIT_CODE = 3
ADDED_GOAL_US = 50.0
TRUTH_SHARE = 0.05
WITHIN_STEP = "within_step"
LOST_GOAL = 0.10

Run = dict[str, Any]


def main() -> int:
    """Print the tables; 1 where gpumon misses a goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("cost", "start", "truth"), help="one part of it")
    parser.add_argument("--rounds", type=int, default=7, help="of cost and start (default 7)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    args = parser.parse_args()
    try:
        rivals_python()
    except NotInstalledError as missing:
        print(f"SKIPPED: {missing}")
        return 0
    tools = [tool for tool in TOOLS if is_there(tool)]
    for tool in set(TOOLS) - set(tools):
        print(f"SKIPPED: {PINNED[tool]} is not in the rivals' environment")
    parts = {"cost": measure_cost, "start": measure_start, "truth": measure_truth}
    chosen = {name: part for name, part in parts.items() if args.only in (None, name)}
    figures = {name: part(tools, args.rounds) for name, part in chosen.items()}
    if args.json:
        print(json.dumps(figures))
    return int(any(not part["met"] for part in figures.values()))


def measure_cost(tools: list[str], rounds: int) -> Run:
    """Microseconds a step and resident memory, in turns."""
    figures: Run = {"met": True}
    for case in COST_CASES:
        runs: dict[str, list[Run]] = {name: [] for name in [*tools, "alternating"]}
        for number in range(rounds):
            for name in runs:
                is_alternating = name == "alternating"
                words = ["--alternate"] if is_alternating else []
                words += ["--hold"] if number == 0 else []
                runs[name].append(train("gpumon" if is_alternating else name, case, words))
            _say(f"{case.name}: round {number + 1} of {rounds}")
        figures[case.name] = _cost_table(case, runs)
        added = figures[case.name]["gpumon, alternating"]["thread"]
        figures["met"] &= added <= ADDED_GOAL_US
        print(f"gpumon adds {added:.0f} us a step (goal: at most {ADDED_GOAL_US:g})")
    return figures


def _cost_table(case: Case, runs: dict[str, list[Run]]) -> Run:
    print(f"\n{case.name}: microseconds a step in the calmest tenth of the epochs")
    table: Run = {}
    for name in [name for name in runs if name != "alternating"]:
        helpers = runs[name][0]["helpers"]
        row: Run = {clock: _calm_us(_epochs(runs[name]), clock) for clock in ("wall", "process")}
        row |= {f"added_{clock}": row[clock] - table.get("bare", row)[clock] for clock in row}
        row["trainer_mib"] = statistics.median(run["rss_mib"] for run in runs[name])
        table[name] = {**row, "helpers": helpers}
        print(
            f"  {name:8} wall {row['wall']:6.0f}  added {row['added_wall']:+.0f}, CPU "
            f"{row['added_process']:+.0f}; trainer {row['trainer_mib']:.0f} MiB, "
            f"helpers {sum(h[1] for h in helpers):.0f} MiB in {len(helpers)}"
        )
    found = {clock: _alternating_us(runs["alternating"], clock) for clock in ("wall", "thread")}
    table["gpumon, alternating"] = found
    print("  gpumon in every other epoch of one process:", end=" ")
    print(f"wall {found['wall']:+.0f}, CPU of its thread {found['thread']:+.0f}")
    return table


def _epochs(runs: list[Run]) -> list[Run]:
    return [epoch for run in runs for epoch in run["epochs_us"]]


def _calm_us(epochs: list[Run], clock: str) -> float:
    return calmest([epoch[clock] for epoch in epochs])


def _alternating_us(runs: list[Run], clock: str) -> float:
    without, with_it = (
        [epoch for run in runs for epoch in run["epochs_us"][first::2]] for first in (0, 1)
    )
    return _calm_us(with_it, clock) - _calm_us(without, clock)


def measure_start(tools: list[str], rounds: int) -> Run:
    """Seconds of a whole run of one step, and the exit code of a script that ends with 3."""
    runs: dict[str, list[Run]] = {tool: [] for tool in tools}
    for number in range(rounds):
        for tool in tools:
            runs[tool].append(train(tool, START_CASE, ["--exit-code", str(EXIT_CODE)]))
        _say(f"start: round {number + 1} of {rounds}")
    figures: Run = {}
    print(f"\nA run of one step whose script ends with exit code {EXIT_CODE}")
    for tool in tools:
        walls, cpus = (
            [[run[key] for run in runs[which]] for which in (tool, "bare")]
            for key in ("process_s", "process_cpu_s")
        )
        added, added_cpu = spread_of(differences(*walls)), spread_of(differences(*cpus))
        codes = sorted({run["code"] for run in runs[tool]})
        figures[tool] = {
            "seconds": spread_of(walls[0]), "added_s": added, "added_cpu_s": added_cpu,
            "codes": codes,
        }  # fmt: skip
        print(
            f"  {tool:8} {spread_of(walls[0]).median:5.1f} s  added {added:+.2f} s, "
            f"CPU {added_cpu:+.2f} s  exit code {codes}"
        )
    figures["met"] = figures["gpumon"]["codes"] == [EXIT_CODE]
    return figures


def measure_truth(tools: list[str], rounds: int) -> Run:
    """What each says of training runs whose trouble is known. Once each: ``rounds`` is not used."""
    figures: Run = {"met": True}
    for case in TRUTH_CASES:
        rows = {}
        for tool in [tool for tool in tools if tool != "bare"]:
            run = train(tool, case, [], watch=True)
            rows[tool] = _evaluated(case, run)
            _say(f"{case.name}: {tool} is done")
        figures[case.name] = rows
        figures["met"] &= rows["gpumon"]["is_right"]
        _print_truth(case, rows)
    return figures


def _evaluated(case: Case, run: Run) -> Run:
    printed: ToolOutput = run["output"]
    lost = dict(run["lost_s"])
    lost[WITHIN_STEP] = run["wall_s"] - run["device_s"] - sum(lost.values())
    worst = max(lost, key=lost.__getitem__)
    is_lossy = lost[worst] >= TRUTH_SHARE * run["wall_s"]
    truth = worst if is_lossy else NOTHING
    is_right = printed.cause == truth and printed.steps == case.steps
    if printed.lost_s is not None:
        is_right &= abs(printed.lost_s - lost[worst]) <= LOST_GOAL * lost[worst]
    return {
        "truth": truth, "true_s": lost[worst], "wall_s": run["wall_s"],
        "device_s": run["device_s"], "steps": case.steps, "output": printed._asdict(),
        "is_right": is_right,
    }  # fmt: skip


def _print_truth(case: Case, rows: Run) -> None:
    print(f"\n{case.name}")
    for tool, row in rows.items():
        printed = row["output"]
        lost = "" if printed["lost_s"] is None else f", {printed['lost_s']:.2f} s"
        print(
            f"  {tool:8} {'right' if row['is_right'] else 'WRONG'}  truth: {row['truth']}, "
            f"{row['true_s']:.2f} of {row['wall_s']:.2f} s, device {row['device_s']:.2f} s, "
            f"{row['steps']} steps\n           printed: {printed['cause']}{lost}, "
            f"{printed['steps']} steps: {printed['words']}"
        )


def train(tool: str, case: Case, words: list[str], *, watch: bool = False) -> Run:
    """One training run in a process of its own; ``watch``: let the tool see the device."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        spans, result = folder / "busy.jsonl", folder / "result.json"
        environ = stack.enter_context(_driver(folder, spans))
        daemon = None
        if tool == "gpumon":
            source = ("--source", f"follow:{spans}", "--period", "0.5" if watch else "1")
            daemon = stack.enter_context(RunningDaemon(folder, *source))
        reported = ["--case", case.name, "--result", str(result), *words]
        reported += ["--spans", str(spans)] if watch else []
        ended = process_tree.run(
            words_for(tool, reported, folder),
            environ=environ_for(folder, environ),
            folder=folder,
            trainer=(lambda: _trainer(result)) if "--hold" in words else (lambda: None),
        )
        if not result.exists():
            raise SystemExit(f"{tool} on {case.name} gave no result:\n{ended.output[-2000:]}")
        run: Run = json.loads(result.read_text(encoding="ascii"))
        run |= {"code": ended.code, "helpers": ended.helpers}
        run |= {"process_s": ended.wall_s, "process_cpu_s": ended.cpu_s}
        if daemon is not None:
            run["helpers"].append(process_tree.memory_of_pid(daemon.process.pid))
        if watch:
            run["output"] = _output_of(tool, daemon, folder, ended.output)
    return run


def _output_of(tool: str, daemon: RunningDaemon | None, folder: Path, output: str) -> ToolOutput:
    if daemon is not None:
        return gpumon_output(daemon)
    return traceml_output(folder) if tool == "traceml" else gpuprof_output(output)


@contextlib.contextmanager
def _driver(folder: Path, spans: Path) -> Iterator[dict[str, str]]:
    """The environment of a process that sees the fake driver, where it can be built."""
    try:
        with GpuOfTruth(folder / "driver", spans) as gpu:
            yield gpu.environ
    except NoCompilerError:
        yield dict(os.environ)


def _trainer(result: Path) -> int | None:
    return int(json.loads(result.read_text(encoding="ascii"))["pid"]) if result.exists() else None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
