"""Trains every cell on every backend; truth, reported and error go to ``docs/accuracy-tables.md``.

python -m tests.truth.phases_table                      all that is installed
python -m tests.truth.phases_table --backend jax        one backend, and no page is written
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.truth.keras_cells import ASYNCHRONOUS, BACKENDS, CELLS, is_possible
from tests.truth.measured_page import put

ROOT: Final = Path(__file__).parents[2]
COMMAND: Final = "python -m tests.truth.phases_table"
MARK: Final = "phases"
_PATIENCE_S: Final = 180
_HEAD: Final = """\
| backend | held up by | phase | truth | reported | error | allowed | no core | |
|---|---|---|---|---|---|---|---|---|
"""
_NOTED: Final = 0.0005
"""Seconds: a phase that neither happened nor was reported gets no row of its own."""
_PHASE_OF: Final = {"input": "input_wait", "callback": "callbacks", "none": "train_step"}


class Measured(NamedTuple):
    """One cell on one backend, as its process reported it; else its ``failure``."""

    backend: str
    name: str
    record: Mapping[str, Any]
    failure: str = ""

    @property
    def missed(self) -> list[str]:
        if self.failure:
            return [self.failure]
        missed = [row["phase"] for row in self.record["rows"] if not _is_met(row)]
        return missed + ["steps"] * (self.record["recorded_steps"] != self.record["steps_made"])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; 1 if any bound was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=BACKENDS)
    parser.add_argument("--cell", choices=[*CELLS, ASYNCHRONOUS], help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.cell:
        print(json.dumps(_trained_here(args.cell, args.backend)), flush=True)
        return 0
    wanted = [args.backend] if args.backend else list(BACKENDS)
    present = [name for name in wanted if _python_of(name).exists()]
    for name in sorted(set(wanted) - set(present)):
        print(f"SKIPPED: {name}: there is no .venv-{name}; make test-{name} makes it")
    measured = [_measure(backend, cell) for backend in present for cell in _cells_of(backend)]
    table = _table(measured)
    print(table)
    if set(present) == set(BACKENDS):
        _write(table)
    missed = [one for one in measured if one.missed]
    for one in missed:
        print(f"MISSED: {one.backend}, {one.name}: {', '.join(one.missed)}")
    return 1 if missed or not measured else 0


def _cells_of(backend: str) -> list[str]:
    names = [name for name in CELLS if is_possible(name, backend)]
    return names + [ASYNCHRONOUS] * (backend == "jax")


def _trained_here(name: str, backend: str) -> dict[str, Any]:
    """Train in this process."""
    from tests.truth import keras_cells

    with tempfile.TemporaryDirectory() as folder:
        if name == ASYNCHRONOUS:
            from tests.truth.asynchronous_jax import outcome_under_a_daemon

            outcome = outcome_under_a_daemon(Path(folder))
        else:
            os.environ["GPUMON_RUNTIME_DIR"] = folder
            outcome = keras_cells.run(name, backend, Path(folder))
    return {**outcome._asdict(), "rows": [row._asdict() for row in outcome.rows]}


def _measure(backend: str, name: str) -> Measured:
    """Train in a process of its own, and say how it went."""
    started_s = time.monotonic()
    ended = subprocess.run(
        [str(_python_of(backend)), "-m", "tests.truth.phases_table",
         "--backend", backend, "--cell", name],
        cwd=ROOT, env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        measured = Measured(backend, name, {}, failure=last[:200])
    else:
        measured = Measured(backend, name, json.loads(ended.stdout.splitlines()[-1]))
    verdict = f"missed: {', '.join(measured.missed)}" if measured.missed else "met"
    print(f"{backend:11s} {name:30s} {time.monotonic() - started_s:5.1f} s  {verdict}", flush=True)
    return measured


def _python_of(backend: str) -> Path:
    return ROOT / f".venv-{backend}" / "bin" / "python"


def _is_met(row: Mapping[str, Any]) -> bool:
    return _verdict(row) != "**missed**"


def _verdict(row: Mapping[str, Any]) -> str:
    error_s: float = abs(row["reported_s"] - row["truth_s"])
    if error_s <= row["bound_s"]:
        return "met"
    is_excused = error_s <= row["bound_s"] + row["without_core_s"]
    return "met, but for the load" if is_excused else "**missed**"


def _table(measured: Sequence[Measured]) -> str:
    lines = []
    for one in measured:
        if one.failure:
            lines.append(
                f"| {one.backend} | {one.name} | failed: {one.failure} | | | | | | missed |"
            )
            continue
        cause = CELLS[one.name].cause if one.name in CELLS else "input"
        lines += [_line(one, row, _PHASE_OF.get(cause, cause)) for row in _telling(one)]
    met = sum(not one.missed for one in measured)
    verdicts = [_verdict(row) for one in measured for row in one.record.get("rows", ())]
    summary = (
        f"{met} of {len(measured)} runs within every bound. Of {len(verdicts)} phases "
        f"{verdicts.count('met')} met it without regard to the load."
    )
    return f"{_HEAD}{chr(10).join(lines)}\n\n{summary}"


def _telling(one: Measured) -> list[Mapping[str, Any]]:
    """What happened or was reported; the rest are zeros."""
    rows: list[Mapping[str, Any]] = one.record["rows"]
    return [
        row for row in rows if max(row["truth_s"], row["reported_s"]) >= _NOTED or not _is_met(row)
    ]


def _line(one: Measured, row: Mapping[str, Any], main: str) -> str:
    error_s, wall_s = row["reported_s"] - row["truth_s"], one.record["wall_s"]
    phase = f"**{row['phase']}**" if row["phase"] == main else row["phase"]
    error = f"{error_s:+.3f} s = {100 * error_s / wall_s:+.1f} points of {wall_s:.2f} s"
    return (
        f"| {one.backend} | {one.name} | {phase} | {row['truth_s']:.3f} s "
        f"| {row['reported_s']:.3f} s | {error} | {row['bound_s']:.3f} s "
        f"| {row['without_core_s']:.2f} s | {_verdict(row)} |"
    )


def _write(table: str) -> None:
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    line = f"`{COMMAND}`, {today}, load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores:"
    put(MARK, f"{line}\n\n{table}")


if __name__ == "__main__":
    sys.exit(main())
