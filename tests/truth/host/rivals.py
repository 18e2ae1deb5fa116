"""Verdicts of TraceML and gpuprof on the same runs, used as their documentation says."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.rivals import process_tree
from benchmarks.rivals.gpu_of_truth import GpuOfTruth
from benchmarks.rivals.tools import (
    PINNED,
    environ_for,
    gpuprof_output,
    is_there,
    traceml_output,
    words_for,
)
from tests.fakenvml.build import NoCompilerError
from tests.truth.host.cells import ROOT, Cell, all_cells
from tests.truth.host.conditions import LOADERS
from tests.truth.host.work import Stage

RIVALS: Final = tuple(PINNED)
_SCRIPT: Final = ROOT / "tests" / "truth" / "host" / "training.py"


def cells_of_rivals() -> list[Cell]:
    """The cells that both support: those of torch."""
    return [
        cell
        for cell in all_cells()
        if LOADERS[cell.loader].framework == "torch" and not cell.has_neighbour
    ]


def verdict_by(rival: str, cell: Cell, stage: Stage, seconds: float) -> str:
    """Its verdict, or that it is not installed."""
    if not is_there(rival):
        return f"not run: {PINNED[rival]} is not installed; `make .venv-rivals/.dev` installs it"
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        spans = folder / "busy.jsonl"
        environ = stack.enter_context(_driver(folder, spans))
        words = [
            "--condition", cell.condition, "--loader", cell.loader, "--seconds", str(seconds),
            "--spans", str(spans), *stage.arguments,
        ]  # fmt: skip
        ended = process_tree.run(
            words_for(rival, words, folder, _SCRIPT),
            environ=environ_for(folder, environ),
            folder=folder,
        )
        if rival == "traceml":
            return traceml_output(folder).words
        return gpuprof_output(ended.output).words


@contextlib.contextmanager
def _driver(folder: Path, spans: Path) -> Iterator[Mapping[str, str]]:
    """The environment of a process that sees the simulated GPU, if that can be built."""
    try:
        with GpuOfTruth(folder / "driver", spans) as gpu:
            yield gpu.environ
    except NoCompilerError:
        yield dict(os.environ)
