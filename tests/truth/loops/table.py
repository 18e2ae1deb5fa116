"""The tables of docs/accuracy.md: each loop, what is true of it, and what a report says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.wording import capital, in_percent
from tests.truth.loops.catalog import JOBS, LOOPS, Loop, drawn
from tests.truth.loops.measured import Measured, Reported, job_measured, loop_measured

SECONDS: Final = 60.0
_EXACT_WITHIN: Final = 0.1
_SHORT_GRAIN_MS: Final = 200.0


def named_measured() -> dict[str, Measured]:
    """Every loop and job of the catalog, by its name."""
    loops = {name: loop_measured(loop, SECONDS) for name, loop in LOOPS.items()}
    return loops | {name: job_measured(job, SECONDS) for name, job in JOBS.items()}


def named_table(measured: Mapping[str, Measured]) -> str:
    """One row for each loop and job; figures in percent of the time observed."""
    lines = [
        "| loop | truth | reported | first sentence |",
        "|---|---|---|---|",
    ]
    for name, one in measured.items():
        truth, reported = ("; ".join(column) for column in zip(*_cells(one), strict=True))
        lines.append(f"| {name} | {truth} | {reported} | {capital(one.sentence)} |")
    return "\n".join(lines)


def drawn_table(seeds: Sequence[int], seconds: float) -> str:
    """How many figures of drawn loops are true, and how many ranges are narrow, by the driver."""
    short, long = _Drawn(), _Drawn()
    for seed in seeds:
        loop = drawn(seed)
        column = short if loop.grain_ms <= _SHORT_GRAIN_MS else long
        column.add(loop, loop_measured(loop, seconds, seed))
    rows = zip(short.rows(), long.rows(), strict=True)
    lines = [f"| {name} | {value} | {other} |" for (name, value), (_, other) in rows]
    head = f"| {len(seeds)} loops of {seconds:g} s | windows of 1/6 and 1/5 s | of 1 s |"
    return "\n".join([head, "|---|---|---|", *lines])


class _Drawn:
    """What became of drawn loops whose driver averages over windows of about one length."""

    def __init__(self) -> None:
        self._figures: list[Reported] = []
        self._synchronous: list[Reported] = []
        self._hardly_used = 0

    def add(self, loop: Loop, measured: Measured) -> None:
        """Count one more."""
        if not measured.is_in_use:
            self._hardly_used += 1
            return
        self._figures += measured.figures
        self._synchronous += measured.figures if loop.is_synchronous else ()

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each count."""
        exact = sum(one.low == one.high for one in self._synchronous)
        return [
            ("causes that are tagged", str(len(self._figures))),
            ("... true: within the range, or 3 points of it", self._part("is_true")),
            ("... range no wider than 10 points", self._part("is_narrow")),
            ("... or the best estimate within 3 points", self._part("is_close")),
            (
                "loops that are idle only in waits, without a range",
                f"{exact} of {len(self._synchronous)}",
            ),
            ("loops whose GPU is busy too little to count as in use", str(self._hardly_used)),
        ]

    def _part(self, what: str) -> str:
        count = sum(getattr(figure, what) for figure in self._figures)
        return f"{count} ({in_percent(count / max(1, len(self._figures)))})"


def _cells(one: Measured) -> Iterator[tuple[str, str]]:
    """Of each figure that is not nothing: the truth, and what is reported."""
    cells = [
        (f"{figure.name} {figure.truth:.1f}", f"{figure.name} {_range(figure)}")
        for figure in one.figures
        if max(figure.truth, figure.high) >= 1
    ]
    yield from cells or [("none", "none")]


def _range(figure: Reported) -> str:
    if figure.high - figure.low < _EXACT_WITHIN:
        return f"{figure.low:.1f}"
    return f"{figure.low:.1f} to {figure.high:.1f}"
