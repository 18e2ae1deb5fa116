"""Run the simulated loops, and write their tables into ``docs/accuracy.md``.

python -m tests.truth.loops            the catalog, and 500 drawn loops
python -m tests.truth.loops --seeds 50
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.core.wording import capital, in_percent
from tests.truth.loops.catalog import JOBS, LOOPS, drawn
from tests.truth.loops.measured import Measured, Reported, job_measured, loop_measured
from tests.truth.tables import DOCS, parser, put, table

SECONDS: Final = 60.0
UNSEEN_FROM: Final = 1_000
"""Limits were tuned on seeds below."""
PAGE: Final = DOCS / "accuracy.md"
_SHORT_GRAIN_MS: Final = 200.0


def main() -> None:
    """Write both tables."""
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=500, help="how many loops are drawn")
    args = arguments.parse_args()
    put("loops", named_table(named_measured()), PAGE)
    put("drawn loops", drawn_table(range(UNSEEN_FROM, UNSEEN_FROM + args.seeds)), PAGE)


def named_measured() -> dict[str, Measured]:
    """Every loop and job of the catalog, by its name."""
    loops = {name: loop_measured(loop, SECONDS) for name, loop in LOOPS.items()}
    return loops | {name: job_measured(job, SECONDS) for name, job in JOBS.items()}


def named_table(measured: Mapping[str, Measured]) -> str:
    """One row for each loop and job; figures in percent of the observed time."""
    rows = []
    for name, one in measured.items():
        shown = [figure for figure in one.figures if max(figure.truth, figure.high) >= 1]
        truths = "; ".join(f"{figure.name} {figure.truth:.1f}" for figure in shown) or "none"
        reported = "; ".join(f"{figure.name} {_range(figure)}" for figure in shown) or "none"
        rows.append([name, truths, reported, capital(one.sentence)])
    return table(["loop", "truth", "reported", "first sentence"], rows)


def _range(figure: Reported) -> str:
    if figure.high - figure.low < 0.1:
        return f"{figure.low:.1f}"
    return f"{figure.low:.1f} to {figure.high:.1f}"


def drawn_table(seeds: Sequence[int]) -> str:
    """How many figures of drawn loops are true, and how many ranges narrow, by driver window."""
    short, long = _Drawn(), _Drawn()
    for seed in seeds:
        column = short if drawn(seed).grain_ms <= _SHORT_GRAIN_MS else long
        column.add(seed)
    rows = [[name, value, long.rows()[name]] for name, value in short.rows().items()]
    heads = [f"{len(seeds)} loops of {SECONDS:g} s", "windows of 1/6 and 1/5 s", "of 1 s"]
    return table(heads, rows)


class _Drawn:
    """The figures of drawn loops with similar driver windows."""

    def __init__(self) -> None:
        self._figures: list[Reported] = []
        self._synchronous: list[Reported] = []
        self._hardly_used = 0

    def add(self, seed: int) -> None:
        loop = drawn(seed)
        measured = loop_measured(loop, SECONDS, seed)
        if not measured.is_in_use:
            self._hardly_used += 1
            return
        self._figures += measured.figures
        self._synchronous += measured.figures if loop.is_synchronous else ()

    def rows(self) -> dict[str, str]:
        exact = sum(one.low == one.high for one in self._synchronous)
        return {
            "causes that are tagged": str(len(self._figures)),
            "... true: within the range, or 3 points of it": self._share("is_true"),
            "... range no wider than 10 points": self._share("is_narrow"),
            "... or the best estimate within 3 points": self._share("is_close"),
            "loops that are idle only in waits, without a range": (
                f"{exact} of {len(self._synchronous)}"
            ),
            "loops whose GPU is busy too little to count as in use": str(self._hardly_used),
        }

    def _share(self, name: str) -> str:
        count = sum(getattr(figure, name) for figure in self._figures)
        return f"{count} ({in_percent(count / max(1, len(self._figures)))})"


if __name__ == "__main__":
    main()
