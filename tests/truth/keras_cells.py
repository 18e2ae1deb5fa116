"""Training runs of known truth: what slows each, and where its batches come from."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

BACKENDS: Final = ("tensorflow", "jax", "torch")
ASYNCHRONOUS: Final = "host waits, device busy"
"""``asynchronous_jax`` trains it, under a daemon."""

_NATIVE: Final = {"tensorflow": "tf.data", "torch": "DataLoader"}


class Cell(NamedTuple):
    """One training run.

    Attributes:
        cause: What slows it.
        slow_s: How long, each time.
        source: Kind of data set; ``native``: the framework's own.
        is_loaded: Whether other processes use every core meanwhile.
        is_quick: Whether the tests run it, too.
    """

    cause: str
    slow_s: float
    source: str = "PyDataset"
    compute_s: float = 0.010
    is_loaded: bool = False
    is_quick: bool = False


CELLS: Final[Mapping[str, Cell]] = MappingProxyType(
    {
        "nothing slow": Cell("none", 0.0),
        "input, PyDataset": Cell("input", 0.030, is_quick=True),
        "input, generator": Cell("input", 0.030, "generator"),
        "input, tf.data or DataLoader": Cell("input", 0.030, "native"),
        "input, loaded machine": Cell("input", 0.030, is_loaded=True, is_quick=True),
        "input, hidden by 4 workers": Cell(
            "input", 0.030, "PyDataset, 4 workers", compute_s=0.025, is_quick=True
        ),
        "checkpoint": Cell("checkpoint", 0.500, is_quick=True),
        "validation": Cell("validation", 0.050, is_quick=True),
        "callback": Cell("callback", 0.015, is_quick=True),
        "compile": Cell("compile", 1.000, is_quick=True),
    }
)


def is_possible(name: str, backend: str) -> bool:
    """torch does not compile, and JAX has no data sets of its own."""
    cell = CELLS[name]
    return not (
        (cell.cause == "compile" and backend == "torch")
        or (cell.source == "native" and backend not in _NATIVE)
    )


def run(name: str, backend: str, folder: Path) -> Any:
    """Train a cell in this process, whose Keras has this backend; return its ``Outcome``."""
    from tests.truth.keras_truth import Fit, train

    cell = CELLS[name]
    source = _NATIVE[backend] if cell.source == "native" else cell.source
    fit = Fit(cell.cause, cell.slow_s, source, compute_s=cell.compute_s)
    with loaded_machine() if cell.is_loaded else contextlib.nullcontext():
        return train(fit, folder)


@contextlib.contextmanager
def loaded_machine() -> Iterator[None]:
    """Keep every core busy."""
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
        for spinner in spinners:
            spinner.wait(10)
