"""Train every cell on every backend; the errors go to ``docs/accuracy-tables.md``.

python -m tests.truth.phases_table                      all installed backends
python -m tests.truth.phases_table --backend jax        one backend; the page is not written
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.truth.keras_cells import ASYNCHRONOUS, BACKENDS, CELLS, is_possible
from tests.truth.tables import parser, put, table, today

ROOT: Final = Path(__file__).parents[2]
_TIMEOUT_S: Final = 180
_NEGLIGIBLE_S: Final = 0.0005
"""A phase that is shorter, in truth and in the report, gets no row."""
_PHASE_OF: Final = {"input": "input_wait", "callback": "callbacks", "none": "train_step"}
_MISSED: Final = "**missed**"


class Measured(NamedTuple):
    """The outcome of one cell on one backend, or why there is none."""

    backend: str
    cell: str
    outcome: Mapping[str, Any]
    failure: str = ""

    @property
    def verdicts(self) -> dict[str, str]:
        """By phase."""
        return {row["phase"]: _verdict(row) for row in self.outcome.get("rows", ())}

    @property
    def missed(self) -> list[str]:
        if self.failure:
            return [self.failure]
        missed = [phase for phase, verdict in self.verdicts.items() if verdict == _MISSED]
        has_all_steps = self.outcome["recorded_steps"] == self.outcome["steps_made"]
        return missed if has_all_steps else [*missed, "steps"]


def main() -> int:
    """Measure; 1 if any bound was missed."""
    arguments = parser(__doc__)
    arguments.add_argument("--backend", choices=BACKENDS)
    cells = [*CELLS, ASYNCHRONOUS]
    arguments.add_argument("--cell", choices=cells, help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.cell:
        print(json.dumps(_trained_here(args.cell, args.backend)), flush=True)
        return 0
    wanted = [args.backend] if args.backend else list(BACKENDS)
    present = [name for name in wanted if _python_of(name).exists()]
    for name in sorted(set(wanted) - set(present)):
        print(f"SKIPPED: {name}: there is no .venv-{name}; make test-{name} makes it")
    measured = [_measure(backend, cell) for backend in present for cell in _cells_of(backend)]
    shown = _table(measured)
    print(shown)
    if set(present) == set(BACKENDS):
        load = f"load average {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
        put("phases", f"`python -m tests.truth.phases_table`, {today()}, {load}:\n\n{shown}")
    return int(not measured or any(one.missed for one in measured))


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


def _measure(backend: str, cell: str) -> Measured:
    """Train in a process of its own."""
    ended = subprocess.run(
        [str(_python_of(backend)), "-m", "tests.truth.phases_table",
         "--backend", backend, "--cell", cell],
        cwd=ROOT, env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no reason given"])[-1]
        measured = Measured(backend, cell, {}, failure=last[:200])
    else:
        measured = Measured(backend, cell, json.loads(ended.stdout.splitlines()[-1]))
    verdict = f"missed: {', '.join(measured.missed)}" if measured.missed else "met"
    print(f"{backend:11s} {cell:30s} {verdict}", flush=True)
    return measured


def _python_of(backend: str) -> Path:
    return ROOT / f".venv-{backend}" / "bin" / "python"


def _verdict(row: Mapping[str, Any]) -> str:
    error_s: float = abs(row["reported_s"] - row["truth_s"])
    if error_s <= row["bound_s"]:
        return "met"
    is_excused = error_s <= row["bound_s"] + row["without_core_s"]
    return "met, except for the load" if is_excused else _MISSED


def _table(measured: Sequence[Measured]) -> str:
    heads = ["backend", "held up by", "phase", "truth", "reported", "error", "allowed", "no core"]
    shown = table([*heads, ""], (row for one in measured for row in _rows(one)))
    met = sum(not one.missed for one in measured)
    verdicts = [verdict for one in measured for verdict in one.verdicts.values()]
    return (
        f"{shown}\n\n{met} of {len(measured)} runs are within all bounds; "
        f"{verdicts.count('met')} of {len(verdicts)} phases also without regard to the load."
    )


def _rows(one: Measured) -> Iterator[list[str]]:
    """The phases that happened or were reported."""
    if one.failure:
        yield [one.backend, one.cell, f"failed: {one.failure}", *[""] * 5, "missed"]
        return
    cause = CELLS[one.cell].cause if one.cell in CELLS else "input"
    wall_s = one.outcome["wall_s"]
    for row in one.outcome["rows"]:
        phase, verdict = row["phase"], one.verdicts[row["phase"]]
        if max(row["truth_s"], row["reported_s"]) < _NEGLIGIBLE_S and verdict != _MISSED:
            continue
        error_s = row["reported_s"] - row["truth_s"]
        name = f"**{phase}**" if phase == _PHASE_OF.get(cause, cause) else phase
        yield [
            one.backend, one.cell, name,
            f"{row['truth_s']:.3f} s", f"{row['reported_s']:.3f} s",
            f"{error_s:+.3f} s = {100 * error_s / wall_s:+.1f} points of {wall_s:.2f} s",
            f"{row['bound_s']:.3f} s", f"{row['without_core_s']:.2f} s", verdict,
        ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
