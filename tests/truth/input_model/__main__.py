"""Fits the model of suspicion on three generators, and says how right it is on one left out.

python -m tests.truth.input_model fit      writes the weights in gpumon/core/settings/input_model.py
python -m tests.truth.input_model score    writes a part of docs/accuracy-tables.md
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress

from gpumon.core.settings import input_model
from gpumon.core.settings.input_model import TERMS
from tests.truth.input_model.cases import FAMILIES, Case, all_cases, recorded_cases
from tests.truth.input_model.fitting import fitted
from tests.truth.input_model.scored import (
    RATES_S,
    abstained,
    accused_kinds_table,
    graded,
    left_out,
    left_out_table,
    lost_seconds_table,
    rates_table,
    reliability_table,
    terms_table,
)
from tests.truth.measured_page import PAGE, put
from tests.truth.workloads import EVALUATION_SEEDS, TRAINING_SEEDS

FITTED_ON: Final = 16
SCORED_ON: Final = 32
_READ_AT_RATES: Final = 6
_FROM, _TO = "# fitted: from here\n", "# fitted: to here\n"


def main() -> int:
    """Fit, or score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["fit", "score"])
    parser.add_argument("--seeds", type=int, help="of each kind")
    args = parser.parse_args()
    fit_seeds = TRAINING_SEEDS[: args.seeds or FITTED_ON]
    train = _cases(fit_seeds, "machines to fit on")
    if args.what == "fit":
        write(fitted(train))
        return 0
    weights = left_out(train)
    seeds = EVALUATION_SEEDS[: args.seeds or SCORED_ON]
    some = graded([*_cases(seeds, "machines to score on"), *recorded_cases()], weights)
    rates = _cases(seeds[:_READ_AT_RATES], "the same at three rates", RATES_S)
    put("terms", terms_table(), PAGE.with_name("how-sure.md"))
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    tables = [left_out_table(some), reliability_table(some)]
    tables += [accused_kinds_table(some), rates_table(rates), lost_seconds_table(rates)]
    put(
        "suspicion",
        f"`python -m tests.truth.input_model score`, {today}: seeds {seeds[0]} to {seeds[-1]} of "
        f"each kind; weights fitted on seeds {fit_seeds[0]} to {fit_seeds[-1]} of the generators "
        "that are not left out. The shape "
        f"decides nothing in {abstained(some):.0%} of the logs.\n\n" + "\n\n".join(tables),
    )
    return 0


def _cases(seeds: range, what: str, periods_s: Sequence[float] = ()) -> list[Case]:
    with Progress(console=Console(file=sys.stderr)) as progress:
        kinds = sum(len(family.kinds) for family in FAMILIES.values())
        task = progress.add_task(what, total=len(seeds) * kinds)
        return [*all_cases([*FAMILIES], seeds, lambda: progress.advance(task), periods_s)]


def write(weights: Sequence[float]) -> None:
    """Put them between the marks of the settings."""
    path = Path(input_model.__file__)
    head, _, rest = path.read_text(encoding="utf-8").partition(_FROM)
    _, _, tail = rest.partition(_TO)
    rows = "".join(f'    "{name}": {one},\n' for name, one in zip(TERMS, weights, strict=True))
    body = f"WEIGHTS: Final[Mapping[str, float]] = {{\n{rows}}}\n"
    path.write_text(f"{head}{_FROM}{body}{_TO}{tail}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
